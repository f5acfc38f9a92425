"""A stream's past as pictures and the report need it: tasks with their trials, and the memory after each or before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lbo.consolidate import belongs, fold
from lbo.memory import Memory
from lbo.models.base import Model
from lbo.stream import Stream
from lbo.trials import sign


@dataclass(frozen=True)
class PastTask:
    """A task and its finished trials, oldest first."""

    name: str
    direction: StudyDirection
    trials: tuple[FrozenTrial, ...]

    @property
    def ranked(self) -> list[FrozenTrial]:
        """The trials that gave a value, best first."""
        return sorted((t for t in self.trials if has_value(t)), key=lambda t: sign(self.direction) * _value(t))

    @property
    def best(self) -> FrozenTrial | None:
        return next(iter(self.ranked), None)

    @property
    def best_value(self) -> float | None:
        return None if self.best is None else _value(self.best)

    def best_so_far(self) -> list[float | None]:
        """The best value after each trial; None before the first."""
        best: float | None = None
        values = []
        for trial in self.trials:
            if has_value(trial) and (best is None or self._as_good(_value(trial), best)):
                best = _value(trial)
            values.append(best)
        return values

    def trials_to(self, level: float) -> int | None:
        """How many trials it took to reach a value; None if none did."""
        reached = (n for n, t in enumerate(self.trials, 1) if has_value(t) and self._as_good(_value(t), level))
        return next(reached, None)

    def _as_good(self, value: float, level: float) -> bool:
        return sign(self.direction) * value <= sign(self.direction) * level


def has_value(trial: FrozenTrial) -> bool:
    """Whether a trial was completed, with a finite value."""
    return trial.state == TrialState.COMPLETE and trial.value is not None and math.isfinite(trial.value)


def past_tasks(stream: Stream, last: int | None = None) -> list[PastTask]:
    """The stream's tasks, oldest first, or the last of them: reading the trials of a thousand takes many seconds."""
    storage, tasks = stream.storage, stream._list()
    shown = tasks if last is None else tasks[-last:]
    return [
        PastTask(
            name=task.name,
            direction=storage.get_study_directions(task.study_id)[0],
            trials=tuple(t for t in storage.get_all_trials(task.study_id, deepcopy=False) if t.state.is_finished()),
        )
        for task in shown
    ]


def memories(stream: Stream, model: Model, last: int | None = None) -> Iterator[Memory | None]:
    """The memory after each task, folded from the trials once more: a stream keeps only the newest two.

    After each of the last tasks, it is what it would be if the stream had begun with the first of those.
    """
    memory = None
    for task in past_tasks(stream, last):
        memory = fold(memory, stream.name, task.name, task.trials, task.direction, model)
        yield memory


def stored_before(stream: Stream, model: Model) -> dict[str, Memory | None]:
    """The memory before each of the newest tasks of which it is stored, oldest first; nothing is folded for it."""
    tasks, shelved = stream._list(), stream._shelf.read()
    usable = [s for s in shelved if belongs(s.memory, model) and stream._unchanged(s.covers, tasks)]
    return {tasks[len(s.covers)].name: s.memory for s in reversed(usable) if len(s.covers) < len(tasks)}


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value
