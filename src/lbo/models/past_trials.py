"""Trials of past tasks, for models that learn from all of them, and which to keep of too many.

X  (n, D) points        z  (n,) their standardised values
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lbo.models.base import Scale, Task, standardise
from lbo.space import Array, Space, frame_map

if TYPE_CHECKING:
    from lbo.memory import Memory

Index = NDArray[np.intp]


def informative(X: Array, z: Array, limit: int) -> Index:
    """Which points to keep of too many: the best third, the latest third, and a third that fills the space.

    The best and the latest are where the search is; the others, each as far as can be from all chosen before it,
    keep what is known of the rest of the space.
    """
    if len(z) <= limit:
        return np.arange(len(z))
    best = np.argsort(z, kind="stable")[: limit // 3]
    latest = np.arange(len(z) - limit // 3, len(z))
    chosen = [*np.union1d(best, latest)]
    distance = np.min([_squared_distances(X, X[i]) for i in chosen], axis=0)
    distance[chosen] = -1.0  # their duplicates may follow, they may not
    while len(chosen) < limit:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, _squared_distances(X, X[chosen[-1]]))
        distance[chosen[-1]] = -1.0
    return np.sort(np.array(chosen))


def _squared_distances(X: Array, x: Array) -> Array:
    return np.asarray(((X - x) ** 2).sum(axis=1))


class PastTrials(NamedTuple):
    """Every trial of the tasks before, kept by models that learn from all of them; grows with their number."""

    X: Array  # (n, D)
    z: Array  # (n,) standardised task by task
    task: Index  # (n,) 0 for the first task

    @property
    def n_tasks(self) -> int:
        return int(self.task.max(initial=-1)) + 1

    def to_arrays(self) -> dict[str, Array]:
        return {"X": self.X, "z": self.z, "task": self.task.astype(float)}

    def with_task(self, task: Task, limit: int | None = None) -> tuple[PastTrials, Scale]:
        """These trials and those of one more task, at most `limit` of each task."""
        z, scale = standardise(task.y)
        newest = np.full(len(z), self.n_tasks)
        X, z = np.vstack([self.X, task.X]), np.append(self.z, z)
        of_task = np.append(self.task, newest)
        if limit is not None:
            rows = [np.flatnonzero(of_task == t) for t in range(of_task.max(initial=-1) + 1)]
            kept = np.concatenate([r[informative(X[r], z[r], limit)] for r in rows])
            X, z, of_task = X[kept], z[kept], of_task[kept]
        return PastTrials(X, z, of_task), scale


def past_trials(memory: Memory | None, space: Space) -> PastTrials:
    """What a memory holds of past trials, in a task's columns."""
    if memory is None or "X" not in memory.arrays:
        return PastTrials(np.empty((0, len(space.columns))), np.empty(0), np.empty(0, dtype=np.intp))
    A, b = frame_map(space, memory.space)
    return PastTrials(memory.arrays["X"] @ A + b, memory.arrays["z"], memory.arrays["task"].astype(np.intp))
