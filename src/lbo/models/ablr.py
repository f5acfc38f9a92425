"""ABLR (Perrone et al. 2018): one network shared by all tasks, a Bayesian linear last layer for each.

X, z, task  (N, D), (N,), (N,)  every trial of the past tasks and of this one, standardised task by task
W           (P,)      the network's weights          lam, beta  precisions of each task's linear layer and noise

W maximises the sum of all tasks' evidences, so a step costs as much as there are trials in all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lbo.maths import networks
from lbo.maths.networks import Sizes
from lbo.models.base import Lesson, Posterior, Task
from lbo.models.dngo import NetworkPosterior, fit_network, fresh_network, layers, named, train_evidence
from lbo.models.gp import MAX_SEEN, N_INITIAL
from lbo.models.past_trials import past_trials
from lbo.seeds import Seed
from lbo.space import Array, frame_map

if TYPE_CHECKING:
    from lbo.memory import Memory


@dataclass(frozen=True)
class ABLR:
    """A feature map common to all tasks, learned from every trial of every one of them.

    Its memory is all past trials and the network so far, from which the next task's training begins; it grows with
    the number of tasks, and so does the time of an ask.
    """

    name: ClassVar[str] = "ABLR"

    units: int = 50

    def n_initial(self, memory: Memory | None) -> int:
        return N_INITIAL

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return None

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> NetworkPosterior:
        sizes = layers(task.X.shape[1], self.units)

        def train(part: Task) -> Array:
            (X, z, of_task), _ = past_trials(memory, task.space).with_task(part, MAX_SEEN)
            W0 = _remembered_network(memory, task, sizes)
            if W0 is None:
                W0 = fresh_network(sizes, seed / "network" / len(part))
            return train_evidence(W0, X, z, of_task, sizes)

        return fit_network(task, sizes, previous, train)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        posterior = self.fit(task, memory, seed, None)
        everything, _ = past_trials(memory, task.space).with_task(task)
        return Lesson({**everything.to_arrays(), "W": posterior.W}, np.empty(0), named(posterior))


def _remembered_network(memory: Memory | None, task: Task, sizes: Sizes) -> Array | None:
    """The past tasks' network as a function of this task's columns."""
    if memory is None or "W" not in memory.arrays:
        return None
    A, b = frame_map(memory.space, task.space)
    old_sizes = (len(memory.space.columns), *sizes[1:])
    return np.asarray(networks.rebase(memory.arrays["W"][None], old_sizes, A, b)[0])
