"""A finished task becomes memory: a pure function of the memory before it and of the task's trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from lbo import blas
from lbo import trials as trials_of
from lbo.memory import Memory, Record
from lbo.models.base import Model, settings
from lbo.seeds import Seed
from lbo.space import Array, Params

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
    space = trials_of.space_of(done, memory.space if memory else None, keep_dropped=True)
    data = trials_of.as_task(space, done, direction)
    with blas.one_thread():
        lesson = model.consolidate(data, memory, Seed(0) / stream / task)
    record = Record(
        task=task,
        n_trials=len(done),
        trials_digest=trials_of.digest(done),
        gates=tuple(lesson.gates),
        hyper=lesson.hyper,
        best=_best(done, y, direction),
    )
    records = (*_without(memory.records, lesson.replaced), record) if memory else (record,)
    # As storage will give it back, so that the worker that made it goes on with what the others read.
    return Memory.from_bytes(Memory(settings(model), space, records, lesson.arrays).to_bytes())


def _without(records: Sequence[Record], network: int | None) -> list[Record]:
    """Records whose gates to a network that is there no more are shut."""
    if network is None:
        return list(records)
    return [replace(r, gates=tuple(0.0 if m == network else gate for m, gate in enumerate(r.gates))) for r in records]


def belongs(memory: Memory | None, model: Model) -> bool:
    """Whether a memory is one that this model made; having nothing to remember is every model's."""
    return memory is None or memory.model == json.loads(json.dumps(settings(model)))


def _best(done: Sequence[FrozenTrial], y: Array, direction: StudyDirection) -> tuple[tuple[Params, float], ...]:
    order = [i for i in np.argsort(y, kind="stable") if np.isfinite(y[i])][:BEST_KEPT]
    return tuple((dict(sorted(done[i].params.items())), float(y[i]) * trials_of.sign(direction)) for i in order)
