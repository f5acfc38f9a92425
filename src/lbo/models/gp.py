"""Gaussian processes: SGP (a task alone), WinnersSGP (past winners first, then SGP) and MTGP (all tasks jointly).

N       points seen         n  points asked about         D  columns         P  parameters         T  tasks
X, z    (N, D), (N,)  points and their standardised values
column  (D,)    the parameter that each column belongs to: the columns of one categorical share its length scale
ell     (P,)    length scales         noise  ()  variance of an observation
v       ()      variance of the process        B = F F^T  (T, T)  that of each task and pair of tasks, times v
theta           hyper-parameters: log ell, log v, log noise; MTGP's continue with the lower triangle of F

    z = c + f(x) + noise,    c ~ N(0, 1) and f ~ GP(0, v Matern-5/2(x / ell)) of each task

The constant c is integrated out: later trials crowd around the minimum, so their mean is not that of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from lbo.maths import gaussian, matern
from lbo.maths.linalg import cholesky, solve_lower
from lbo.models.base import Lesson, Posterior, Scale, Task, checkpoint, standardise
from lbo.seeds import Seed
from lbo.space import Array, Params, Space, frame_map

if TYPE_CHECKING:
    from lbo.memory import Memory

CONSTANT = 1.0  # prior variance of c
N_INITIAL = 5  # as in the paper
GROWTH = 1.1  # hyper-parameters are learned afresh when a task has grown by this factor
MAX_SEEN = 500  # trials of one task that predictions rest on
MAX_LEARNED_FROM = 200  # trials of one task that hyper-parameters are learned from
WINNERS = 5  # trials that may go to past winners

Index = NDArray[np.intp]


# Hyper-parameters


class Prior(NamedTuple):
    """Independent Gaussians over theta, and the box that theta stays in."""

    mean: Array
    std: Array
    low: Array
    high: Array

    def log_density_grad(self, theta: Array) -> tuple[float, Array]:
        """Up to a constant: value, dtheta."""
        d = (theta - self.mean) / self.std
        return float(-0.5 * d @ d), -d / self.std


def length_scale_prior(P: int) -> Prior:
    """Distances in the cube grow as sqrt P, and length scales with them (Hvarfner et al. 2024)."""
    return log_normal(P, 0.5 * np.sqrt(P), 1.0, 0.02, 50.0)


def variance_prior() -> Prior:
    """The values have variance 1; a process with long length scales varies less than it could."""
    return log_normal(1, 1.0, 1.5, 1e-3, 1e3)


def noise_prior() -> Prior:
    """Little noise, but up to all there is to see when repeated points disagree."""
    return log_normal(1, 1e-4, 3.0, 1e-8, 2.0)


def join(*priors: Prior) -> Prior:
    """The prior of several thetas after one another."""
    return Prior(*(np.concatenate(parts) for parts in zip(*priors, strict=True)))


def log_normal(count: int, median: float, log_std: float, low: float, high: float) -> Prior:
    """`count` hyper-parameters alike; the box is [low, high]."""
    logs = np.log([median, low, high])
    mean, least, most = (np.full(count, x) for x in logs)
    return Prior(mean, np.full(count, log_std), least, most)


def learn(log_evidence_grad: Callable[[Array], tuple[float, Array]], prior: Prior, starts: Sequence[Array]) -> Array:
    """The theta of largest evidence times prior, climbing from each start."""

    def loss(theta: Array) -> tuple[float, Array]:
        evidence, d_evidence = log_evidence_grad(theta)
        log_prior, d_prior = prior.log_density_grad(theta)
        return -evidence - log_prior, -d_evidence - d_prior

    bounds = list(zip(prior.low, prior.high, strict=True))
    # ftol is relative: at a hundred nats it stops at 1e-4 of one, where no theta is worth preferring to another.
    options = {"maxiter": 100, "ftol": 1e-6}
    found = [minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for x in starts]
    return np.asarray(min(found, key=lambda result: result.fun).x)


# One task


def log_evidence_grad(
    theta: Array, X: Array, z: Array, column: Index, extra: float | Array = CONSTANT
) -> tuple[float, Array, Array]:
    """log p(z | theta) and its derivatives: value, dtheta, dK.

    extra is the covariance (N, N) of whatever else the values are made of: that of c here, that of more terms in
    models that have them, whose own derivatives follow from dK.
    """
    P = len(theta) - 2
    v, noise = np.exp(theta[P:])
    R, tape = matern.kernel_tape(X, np.exp(theta[:P])[column], v)
    value, dK, _ = gaussian.log_evidence_grad(_with_noise(R + extra, noise), z)
    dcolumn, dlog_v = matern.kernel_grad(tape, dK)
    dlog_ell = np.bincount(column, dcolumn, minlength=P)
    return value, np.concatenate([dlog_ell, [dlog_v, noise * np.trace(dK)]]), dK


def learn_theta(X: Array, z: Array, column: Index, P: int) -> Array:
    """theta of one task on its own."""
    prior = join(length_scale_prior(P), variance_prior(), noise_prior())
    # The same data may be smooth with little noise or rough with much; each start finds one of the two.
    rough = prior.mean + np.repeat([np.log(0.25), 0.0, np.log(100.0)], [P, 1, 1])
    return learn(lambda theta: log_evidence_grad(theta, X, z, column)[:2], prior, [prior.mean, rough])


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


def _with_noise(K: Array, noise: float) -> Array:
    """K + noise I, in place."""
    K.flat[:: len(K) + 1] += noise
    return K


@dataclass(frozen=True)
class GPPosterior:
    """One task's process given points of its own and, for MTGP, of other tasks.

    The covariance of f(x) + c with point i is link_i Matern(x, x_i) + own_i: link is v, or the row of B that
    belongs to the task; own is the variance of c where the point is the task's own, else 0.
    """

    theta: Array
    learned_from: int  # the task's first trials that theta was learned from
    X: Array
    link: Array  # (N,)
    own: Array  # (N,)
    ell: Array  # (D,) by column
    v: float
    noise: float
    seen: gaussian.Posterior
    best: float
    scale: Scale

    stranger: ClassVar[float] = 0.0

    def mixture(self, X: Array) -> tuple[Array, Array, Array]:
        mean, var = gaussian.predict(self.seen, self._covariance(X), np.full(len(X), self.v + CONSTANT))
        return np.zeros(1), mean[None], var[None]

    def believe(self, X: Array) -> GPPosterior:
        Ks = self._covariance(X)
        K = _with_noise(matern.kernel(X, X, self.ell, self.v) + CONSTANT, self.noise)
        below = solve_lower(self.seen.L, Ks.T).T
        L = np.block([[self.seen.L, np.zeros((len(self.X), len(X)))], [below, cholesky(K - below @ below.T)]])
        # What was expected teaches nothing of the mean: K^-1 z of the new points is 0.
        a = np.append(self.seen.a, np.zeros(len(X)))
        # The believed values count as seen; otherwise every worker would chase the same sure improvement.
        best = min(self.best, float((Ks @ self.seen.a).min(initial=np.inf)))
        return replace(
            self,
            X=np.vstack([self.X, X]),
            link=np.append(self.link, np.full(len(X), self.v)),
            own=np.append(self.own, np.full(len(X), CONSTANT)),
            seen=gaussian.Posterior(L, a),
            best=best,
        )

    def to_user(self, values: Array) -> Array:
        return self.scale.to_user(values)

    def sharing(self, x: Array) -> dict[str, float]:
        return {}

    def _covariance(self, X: Array) -> Array:
        return self.link * matern.kernel(X, self.X, self.ell, 1.0) + self.own


def _smallest_mean(seen: gaussian.Posterior, z: Array, noise: float, own: Array) -> float:
    """The smallest posterior mean at the task's own points, the mean at a point seen being z - noise a.

    Not the smallest observation: with noise that is a lucky one, and nothing would seem to improve on it.
    """
    return float((z - noise * seen.a)[own > 0].min())


@dataclass(frozen=True)
class SGP:
    """A Gaussian process for one task; nothing is shared. Hyper-parameters by empirical Bayes with weak priors.

    They are learned afresh at checkpoints of the task's length only, from the trials up to there; in between, new
    trials enter the posterior and leave them alone.
    """

    name: ClassVar[str] = "SGP"

    def n_initial(self, memory: Memory | None) -> int:
        return N_INITIAL

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return None

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> GPPosterior:
        start = checkpoint(len(task), self.n_initial(memory), GROWTH)
        theta = _known_theta(previous, start)
        if theta is None:
            X, z, _ = _seen_of(task.first(start), MAX_LEARNED_FROM)
            theta = learn_theta(X, z, task.space.column_axis, len(task.space.axes))
        return _single_posterior(theta, start, task)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        posterior = self.fit(task, memory, seed, None)
        return Lesson({}, np.empty(0), named(posterior, task.space))


def _known_theta(previous: Posterior | None, start: int) -> Array | None:
    if isinstance(previous, GPPosterior) and previous.learned_from == start:
        return previous.theta
    return None


def _seen_of(task: Task, limit: int) -> tuple[Array, Array, Scale]:
    z, scale = standardise(task.y)
    kept = informative(task.X, z, limit)
    return task.X[kept], z[kept], scale


def _single_posterior(theta: Array, learned_from: int, task: Task) -> GPPosterior:
    X, z, scale = _seen_of(task, MAX_SEEN)
    P = len(theta) - 2
    ell = np.exp(theta[:P])[task.space.column_axis]
    v, noise = (float(x) for x in np.exp(theta[P:]))
    seen = gaussian.factorise(_with_noise(matern.kernel(X, X, ell, v) + CONSTANT, noise), z)
    link, own = np.full(len(z), v), np.full(len(z), CONSTANT)
    best = _smallest_mean(seen, z, noise, own)
    return GPPosterior(theta, learned_from, X, link, own, ell, v, noise, seen, best, scale)


def named(posterior: GPPosterior, space: Space) -> dict[str, float]:
    """A posterior's hyper-parameters by name, for the task's record."""
    log_ell = posterior.theta[: len(space.axes)]
    scales = {f"log_ell:{name}": float(x) for name, x in zip(space.names, log_ell, strict=True)}
    return {**scales, "log_v": float(np.log(posterior.v)), "log_noise": float(np.log(posterior.noise))}


@dataclass(frozen=True)
class WinnersSGP(SGP):
    """Tries the best configuration of each of the last tasks first, then goes on as SGP: the rival to beat."""

    name: ClassVar[str] = "WinnersSGP"

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        # Trials are counted, not winners: one that lost a parameter since may never be recognised as tried.
        if memory is None or len(task) >= WINNERS:
            return None
        winners = (record.best[0][0] for record in reversed(memory.records) if record.best)
        return next((winner for winner in winners if _is_new(winner, task)), None)


def _is_new(winner: Params, task: Task) -> bool:
    """Whether a configuration is possible in this task, all its choices being there, and has not been tried."""
    U = task.space.to_unit([winner])
    possible = not any(name in winner and np.isnan(u) for name, u in zip(task.space.names, U[0], strict=True))
    x = task.space.encode(task.space.snap(U))
    return possible and not np.isclose(task.X, x).all(axis=1).any()


# All tasks


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


def joint_log_evidence_grad(
    theta: Array, X: Array, z: Array, task: Index, column: Index, P: int
) -> tuple[float, Array]:
    """log p(z | theta) of all tasks together: value, dtheta."""
    ell, v, noise, F = _unpack(theta, P)
    R, tape = matern.kernel_tape(X, ell[column], v)
    among = (F @ F.T)[np.ix_(task, task)]
    same = task[:, None] == task
    value, dK, _ = gaussian.log_evidence_grad(_with_noise(among * R + CONSTANT * same, noise), z)
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
        theta = _known_theta(previous, start)
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
    seen = gaussian.factorise(_with_noise(K, noise), z)
    link, own = B[-1, task], CONSTANT * (task == len(F) - 1)
    best = _smallest_mean(seen, z, noise, own)
    return GPPosterior(theta, learned_from, X, link, own, ell, float(B[-1, -1]), noise, seen, best, scale)
