"""A stream's past as pictures and the report need it: every task's trials, and the memory after every task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lbo.consolidate import fold
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


def past_tasks(stream: Stream) -> list[PastTask]:
    """The stream's tasks, oldest first."""
    storage = stream.storage
    return [
        PastTask(
            name=task.name,
            direction=storage.get_study_directions(task.study_id)[0],
            trials=tuple(t for t in storage.get_all_trials(task.study_id, deepcopy=False) if t.state.is_finished()),
        )
        for task in stream._list()
    ]


def memories(stream: Stream, model: Model) -> Iterator[Memory | None]:
    """The memory after each task, folded from the trials once more: a stream keeps only the newest."""
    memory = None
    for task in past_tasks(stream):
        memory = fold(memory, stream.name, task.name, task.trials, task.direction, model)
        yield memory


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value
