"""A finished task becomes memory: a pure function of the memory before it and of the task's trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from threadpoolctl import ThreadpoolController

from lbo import trials as trials_of
from lbo.memory import Memory, Record, float32
from lbo.models.base import Model, settings
from lbo.seeds import Seed
from lbo.space import Array, Space, learn_space

BEST_KEPT = 3  # configurations per record


def fold(
    memory: Memory | None,
    stream: str,
    task: str,
    trials: Sequence[FrozenTrial],
    direction: StudyDirection,
    model: Model,
) -> Memory | None:
    """The memory after a task; unchanged by a task in which fewer than two trials gave a value.

    The seed comes from the names alone, so that every worker comes to the same bytes.
    """
    done = sorted(trials_of.finished(trials), key=lambda t: t.number)
    y = trials_of.values(done, direction)
    if np.isfinite(y).sum() < 2:
        return memory
    space = learn_space(
        [t.params for t in done], [t.distributions for t in done], memory.space if memory else None, keep_dropped=True
    )
    data = trials_of.as_task(space, done, direction)
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        lesson = model.consolidate(data, memory, Seed(0) / stream / task)
    record = Record(
        task=task,
        n_trials=len(done),
        trials_digest=trials_of.digest(done),
        gates=tuple(round(float(gate), 4) for gate in lesson.gates),
        hyper={name: round(float(value), 6) for name, value in lesson.hyper.items()},
        best=_best(done, y, direction),
    )
    records = (*memory.records, record) if memory else (record,)
    return Memory(dict(settings(model)), _framed(space), records, float32(lesson.arrays))


def _best(done: Sequence[FrozenTrial], y: Array, direction: StudyDirection) -> tuple[tuple[dict[str, object], float], ...]:
    order = [i for i in np.argsort(y, kind="stable") if np.isfinite(y[i])][:BEST_KEPT]
    return tuple((dict(sorted(done[i].params.items())), float(y[i]) * trials_of.sign(direction)) for i in order)


def _framed(space: Space) -> Space:
    """The space as storage gives it back: frames and conditions, nothing of where the search may go."""
    return Space.from_json(space.to_json())
