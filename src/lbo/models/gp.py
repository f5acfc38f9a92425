"""Gaussian processes of one task: SGP, and WinnersSGP, which tries past winners first.

N       points seen         n  points asked about         D  columns         P  parameters
X, z    (N, D), (N,)  points and their standardised values
column  (D,)    the parameter that each column belongs to: the columns of one categorical share its length scale
ell     (P,)    length scales         noise  ()  variance of an observation
v       ()      variance of the process
theta           hyper-parameters: log ell, log v, log noise

    z = c + f(x) + noise,    c ~ N(0, 1) and f ~ GP(0, v Matern-5/2(x / ell))

The constant c is integrated out: later trials crowd around the minimum, so their mean is not that of the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lbo.maths import gaussian, matern
from lbo.maths.linalg import whitener
from lbo.models.base import Lesson, Posterior, Scale, Task, checkpoint, plain_gain, standardise
from lbo.models.empirical import join, learn, length_scale_prior, noise_prior, variance_prior
from lbo.models.past_trials import Index, informative
from lbo.seeds import Seed
from lbo.space import Array, Params, Space

if TYPE_CHECKING:
    from lbo.memory import Memory

CONSTANT = 1.0  # prior variance of c
N_INITIAL = 5  # as in the paper
GROWTH = 1.1  # hyper-parameters are learned afresh when a task has grown by this factor
MAX_SEEN = 500  # trials of one task that predictions rest on
MAX_LEARNED_FROM = 200  # trials of one task that hyper-parameters are learned from
WINNERS = 5  # trials that may go to past winners

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
    value, dK, _ = gaussian.log_evidence_grad(with_noise(R + extra, noise), z)
    dcolumn, dlog_v = matern.kernel_grad(tape, dK)
    dlog_ell = np.bincount(column, dcolumn, minlength=P)
    return value, np.concatenate([dlog_ell, [dlog_v, noise * np.trace(dK)]]), dK


def learn_theta(X: Array, z: Array, column: Index, P: int) -> Array:
    """theta of one task on its own."""
    prior = join(length_scale_prior(P), variance_prior(), noise_prior())
    # The same data may be smooth with little noise or rough with much; each start finds one of the two.
    rough = prior.mean + np.repeat([np.log(0.25), 0.0, np.log(100.0)], [P, 1, 1])
    return learn(lambda theta: log_evidence_grad(theta, X, z, column)[:2], prior, [prior.mean, rough])


def with_noise(K: Array, noise: float) -> Array:
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

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        return plain_gain(self.best, self.mixture(X))

    def believe(self, X: Array) -> GPPosterior:
        Ks = self._covariance(X)
        K = with_noise(matern.kernel(X, X, self.ell, self.v) + CONSTANT, self.noise)
        # [[L, 0], [below, L_new]] would be the Cholesky factor of all; its inverse in blocks:
        W = self.seen.W
        below = Ks @ W.T
        W_new = whitener(K - below @ below.T)
        W_all = np.block([[W, np.zeros((len(self.X), len(X)))], [-W_new @ below @ W, W_new]])
        # What was expected teaches nothing of the mean: K^-1 z of the new points is 0.
        a = np.append(self.seen.a, np.zeros(len(X)))
        # The believed values count as seen; otherwise every worker would chase the same sure improvement.
        best = min(self.best, float((Ks @ self.seen.a).min(initial=np.inf)))
        return replace(
            self,
            X=np.vstack([self.X, X]),
            link=np.append(self.link, np.full(len(X), self.v)),
            own=np.append(self.own, np.full(len(X), CONSTANT)),
            seen=gaussian.Posterior(W_all, a),
            best=best,
        )

    def to_user(self, values: Array) -> Array:
        return self.scale.to_user(values)

    def sharing(self, x: Array) -> dict[str, float]:
        return {}

    def _covariance(self, X: Array) -> Array:
        return self.link * matern.kernel(X, self.X, self.ell, 1.0) + self.own


def smallest_mean(seen: gaussian.Posterior, z: Array, noise: float, own: Array) -> float:
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
        theta = known_theta(previous, start)
        if theta is None:
            X, z, _ = _seen_of(task.first(start), MAX_LEARNED_FROM)
            theta = learn_theta(X, z, task.space.column_axis, len(task.space.axes))
        return _single_posterior(theta, start, task)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        posterior = self.fit(task, memory, seed, None)
        return Lesson({}, np.empty(0), named(posterior, task.space))


def known_theta(previous: Posterior | None, start: int) -> Array | None:
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
    seen = gaussian.factorise(with_noise(matern.kernel(X, X, ell, v) + CONSTANT, noise), z)
    link, own = np.full(len(z), v), np.full(len(z), CONSTANT)
    best = smallest_mean(seen, z, noise, own)
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
