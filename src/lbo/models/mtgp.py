"""MTGP: one Gaussian process over all tasks at once.

N       trials of all tasks        P  parameters        T  tasks         D  columns
X, z    (N, D), (N,)  points and their values, standardised task by task         task  (N,)  whose they are
column  (D,)    the parameter that each column belongs to
B = F F^T  (T, T)  covariance of the tasks, times the variance v of the process
theta           log ell (P,), log v, log noise, and the lower triangle of F, its diagonal as logarithms

    z = c_t + f_t(x) + noise,    c_t ~ N(0, 1),    cov f_t(x), f_t'(x') = v B_tt' Matern-5/2(x / ell, x' / ell)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lbo.maths import gaussian, matern
from lbo.models.base import Lesson, Posterior, Scale, Task, checkpoint
from lbo.models.empirical import Prior, join, learn, length_scale_prior, noise_prior, variance_prior
from lbo.models.gp import (
    CONSTANT,
    GROWTH,
    MAX_LEARNED_FROM,
    MAX_SEEN,
    N_INITIAL,
    GPPosterior,
    known_theta,
    named,
    smallest_mean,
    with_noise,
)
from lbo.models.past_trials import Index, PastTrials, past_trials
from lbo.seeds import Seed
from lbo.space import Array, Space

if TYPE_CHECKING:
    from lbo.memory import Memory


def joint_log_evidence_grad(
    theta: Array, X: Array, z: Array, task: Index, column: Index, P: int
) -> tuple[float, Array]:
    """log p(z | theta) of all tasks together: value, dtheta."""
    ell, v, noise, F = _unpack(theta, P)
    R, tape = matern.kernel_tape(X, ell[column], v)
    among = (F @ F.T)[np.ix_(task, task)]
    same = task[:, None] == task
    value, dK, _ = gaussian.log_evidence_grad(with_noise(among * R + CONSTANT * same, noise), z)
    dcolumn, dlog_v = matern.kernel_grad(tape, dK * among)
    dlog_ell = np.bincount(column, dcolumn, minlength=P)
    of_task = np.eye(len(F))[task]  # (N, T) one-hot
    dF = 2.0 * (of_task.T @ (dK * R) @ of_task) @ F  # dB is symmetric
    dF[np.diag_indices(len(F))] *= np.diag(F)  # by its logarithm
    return value, np.concatenate([dlog_ell, [dlog_v, noise * np.trace(dK)], dF[np.tril_indices(len(F))]])


def _unpack(theta: Array, P: int) -> tuple[Array, float, float, Array]:
    """ell, v, noise and F, whose diagonal theta holds as logarithms."""
    v, noise = np.exp(theta[P : P + 2])
    entries = theta[P + 2 :]
    T = int(np.sqrt(2 * len(entries)))
    F = np.zeros((T, T))
    F[np.tril_indices(T)] = entries
    F[np.diag_indices(T)] = np.exp(np.diag(F))
    return np.exp(theta[:P]), float(v), float(noise), F


def factor_prior(T: int) -> Prior:
    """Of F: entries of order 1, but the logarithms on the diagonal may fall far: then a task is one with the past."""
    on_diagonal = np.eye(T, dtype=bool)[np.tril_indices(T)]
    return Prior(
        mean=np.zeros(len(on_diagonal)),
        std=np.where(on_diagonal, 2.0, 1.0),
        low=np.where(on_diagonal, -7.0, -10.0),
        high=np.where(on_diagonal, 2.0, 10.0),
    )


def _relatives(T: int) -> Array:
    """The lower triangle of F, as theta holds it, of tasks with correlation 0.7."""
    F = np.linalg.cholesky(0.3 * np.eye(T) + 0.7)
    F[np.diag_indices(T)] = np.log(np.diag(F))
    return np.asarray(F[np.tril_indices(T)])


def _learn_joint_theta(data: PastTrials, column: Index, P: int) -> Array:
    X, z, task = data
    alone = join(length_scale_prior(P), variance_prior(), noise_prior())
    start = np.append(alone.mean, _relatives(data.n_tasks))
    prior = join(alone, factor_prior(data.n_tasks))
    return learn(lambda theta: joint_log_evidence_grad(theta, X, z, task, column, P), prior, [start])


@dataclass(frozen=True)
class MTGP:
    """A Gaussian process over all tasks at once (Swersky, Snoek and Adams 2013): Matern-5/2 times a covariance B.

    Its memory is every trial of every past task, and B has T (T + 1) / 2 hyper-parameters: an ask at task T costs
    (N_1 + ... + N_T)^3. It is here to be compared with; when tasks keep coming, use `Lifelong`.
    """

    name: ClassVar[str] = "MTGP"

    def n_initial(self, memory: Memory | None) -> int:
        return N_INITIAL

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return None

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> GPPosterior:
        past = past_trials(memory, task.space)
        start = checkpoint(len(task), self.n_initial(memory), GROWTH)
        theta = known_theta(previous, start)
        if theta is None:
            known, _ = past.with_task(task.first(start), MAX_LEARNED_FROM)
            theta = _learn_joint_theta(known, task.space.column_axis, len(task.space.axes))
        return _joint_posterior(theta, start, *past.with_task(task, MAX_SEEN), task.space)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        posterior = self.fit(task, memory, seed, None)
        everything, _ = past_trials(memory, task.space).with_task(task)
        return Lesson(everything.to_arrays(), np.empty(0), named(posterior, task.space))


def _joint_posterior(theta: Array, learned_from: int, data: PastTrials, scale: Scale, space: Space) -> GPPosterior:
    X, z, task = data
    ell, v, noise, F = _unpack(theta, len(space.axes))
    ell = ell[space.column_axis]
    B = v * F @ F.T
    K = B[np.ix_(task, task)] * matern.kernel(X, X, ell, 1.0) + CONSTANT * (task[:, None] == task)
    seen = gaussian.factorise(with_noise(K, noise), z)
    link, own = B[-1, task], CONSTANT * (task == len(F) - 1)
    best = smallest_mean(seen, z, noise, own)
    return GPPosterior(theta, learned_from, X, link, own, ell, float(B[-1, -1]), noise, seen, best, scale)
