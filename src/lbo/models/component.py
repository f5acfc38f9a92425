"""One hypothesis of the default model as a Gaussian process: that a task leans on one remembered function, or on none.

f / s = c + b(x) + rho g(x) + sqrt(1 - rho^2) r(x)       r a Matern-5/2 process of variance 1, c ~ N(0, KAPPA)
rho     from -1 to 1: a task may be what a function says turned upside down
b       one offset ~ N(0, BETA) for every choice that other parameters depend on, an algorithm, say: that a task agrees
        with g on one algorithm says little of another. b(x) = beta . x with beta (D,) ~ N(0, diag(branch^2))
theta   (P + 3,)  log ell of each parameter, logit rho^2, log noise (relative to s^2), log s
X, z              trials: encoded points and transformed values
x*                the trial that the hypothesis holds best
gain(x)           f(x*) - f(x). Its mean is m(x*) - m(x), and a trial at x moves its estimate by a normal of variance
                  (k(x, x) - k(x, x*))^2 / (k(x, x) + noise), with m and k of f given the trials. Without noise that is
                  k(x, x), and its positive part on average is expected improvement. With noise, another trial at x*
                  gains nothing, however uncertain f is there. Each hypothesis has its own x*: what one of them holds
                  better than the best of the others, and has been tried, is no gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lbo.maths import Array, gaussian, linalg, matern
from lbo.models import latent
from lbo.models.base import Task
from lbo.models.latent import Prepared
from lbo.space import ONE_HOT, Space

KAPPA = 4.0  # prior variance of c: the middle of the first trials may be two deviations off
BETA = 0.1  # prior variance of b
LARGEST_FIT = 400  # trials; beyond that, the best half and an even choice of the others


class Hypothesis(NamedTuple):
    """That the task leans on function m (None: on none), and its hyper-parameters."""

    m: int | None
    theta: Array
    score: float  # log evidence plus log priors
    sign: float = 1.0  # of rho


class Incumbent(NamedTuple):
    """x* of one hypothesis."""

    row: int  # of X
    mean: float  # of f / s there
    toward: Array  # (N,) the weights of Ks in its covariance with f / s elsewhere


class Component(NamedTuple):
    """One hypothesis, conditioned on the trials."""

    g: Prepared | None
    m: int | None
    ell: Array  # (D,)
    rho: float
    noise: float
    s: float
    branch: Array  # (D,)
    X: Array
    fit: gaussian.Posterior
    seen: latent.Seen | None = None  # X as g sees it
    incumbent: Incumbent | None = None  # None without trials


def shared(theta: Array) -> float:
    """rho^2 of a hypothesis that leans on a function."""
    return float(1.0 / (1.0 + np.exp(-theta[-3])))


def condition(task: Task, z: Array, g: Prepared | None, hypothesis: Hypothesis) -> Component:
    """A hypothesis, that the task leans on g, given trials."""
    P = len(hypothesis.theta) - 3
    ell = np.exp(hypothesis.theta[:P])[task.space.column_axis]
    noise, s = (float(x) for x in np.exp(hypothesis.theta[P + 1 :]))
    rho = 0.0 if g is None else hypothesis.sign * float(np.sqrt(shared(hypothesis.theta)))
    nothing = gaussian.Posterior(np.empty(0), np.empty(0))
    return given(Component(g, hypothesis.m, ell, rho, noise, s, branch_of(task.space), task.X, nothing), task.X, z)


def given(c: Component, X: Array, z: Array) -> Component:
    """The same hypothesis given other trials."""
    A = prior_cov(c, X, X)
    linalg.diagonal(A)[:] += c.noise
    fit = gaussian.factorise(A, z / c.s - prior_mean(c, X))
    seen = latent.see(c.g, X) if c.g else None
    return c._replace(X=X, fit=fit, seen=seen, incumbent=_incumbent(A, fit, z / c.s, c.noise) if len(z) else None)


def _incumbent(A: Array, fit: gaussian.Posterior, y: Array, noise: float) -> Incumbent:
    """Of trials y = z / s with covariance A, noise included."""
    mean = y - noise * fit.a
    row = int(mean.argmin())
    k = A[:, row].copy()
    k[row] -= noise
    return Incumbent(row, float(mean[row]), linalg.solve(fit.W, k))


def prior_mean(c: Component, X: Array) -> Array:
    """Of f / s."""
    return c.rho * latent.mean(c.g, X) if c.g else np.zeros(len(X))


def prior_cov(c: Component, X1: Array, X2: Array) -> Array:
    """Of f / s."""
    K = matern.kernel(X1, X2, c.ell, 1 - c.rho**2) + offset_cov(c.branch, X1, X2)
    return K + c.rho**2 * latent.cov(c.g, X1, X2) if c.g else K


def branch_of(space: Space) -> Array:
    """(D,) deviations of beta: zero for all but the choices that b is about."""
    return np.asarray(np.sqrt(BETA) / ONE_HOT * space.branching)


def offset_cov(branch: Array, X1: Array, X2: Array) -> Array | float:
    """Of c + b(x)."""
    return KAPPA + (X1 * branch) @ (X2 * branch).T if branch.any() else KAPPA


def predict(c: Component, X: Array) -> tuple[Array, Array]:
    """Mean and variance of f at X, in units of z."""
    return _predict(c, X, _of_function(c, X))


def predict_each(components: Sequence[Component], X: Array) -> tuple[Array, Array]:
    """Means and variances (S, n) of f under several hypotheses."""
    return _each(_predict, components, X)


def gain_each(components: Sequence[Component], X: Array) -> tuple[Array, Array]:
    """Means and variances (S, n) of the gain under several hypotheses."""
    return _each(_gain, components, X)


OfFunction = tuple[Array, Array, Array] | None


def _each(
    moments: Callable[[Component, Array, OfFunction], tuple[Array, Array]], components: Sequence[Component], X: Array
) -> tuple[Array, Array]:
    """Those that lean on one function look it up once."""
    known = {c.m: _of_function(c, X) for c in {c.m: c for c in components}.values()}
    mean, var = zip(*(moments(c, X, known[c.m]) for c in components), strict=True)
    return np.array(mean), np.array(var)


def _of_function(c: Component, X: Array) -> OfFunction:
    """Mean and variance of g at X, and its covariance with the trials."""
    return latent.mean_var_cov(c.g, X, c.seen) if c.g and c.seen else None


def _predict(c: Component, X: Array, of_function: OfFunction) -> tuple[Array, Array]:
    mean, var, _ = _posterior(c, X, of_function)
    return c.s * mean, c.s**2 * var


def _gain(c: Component, X: Array, of_function: OfFunction) -> tuple[Array, Array]:
    assert c.incumbent is not None
    mean, var, Ks = _posterior(c, X, of_function)
    cov = Ks[:, c.incumbent.row] - Ks @ c.incumbent.toward
    return c.s * (c.incumbent.mean - mean), c.s**2 * (var - cov) ** 2 / (var + c.noise)


def _posterior(c: Component, X: Array, of_function: OfFunction) -> tuple[Array, Array, Array]:
    """Mean and variance of f / s at X, and Ks, its prior covariance with the trials."""
    Ks = matern.kernel(X, c.X, c.ell, 1 - c.rho**2) + offset_cov(c.branch, X, c.X)
    mu = var = np.zeros(len(X))
    if of_function is not None:
        mu, var, cov = of_function
        Ks += c.rho**2 * cov
    offset_var = KAPPA + X**2 @ c.branch**2
    mean, var = gaussian.predict(c.fit, Ks, c.rho**2 * var + (1 - c.rho**2) + offset_var)
    return c.rho * mu + mean, var, Ks


def leaning(components: Sequence[Component], log_w: Array) -> dict[int, float]:
    """How far a mixture rests on each function.

    A hypothesis counts by its weight, and of that the function by its share rho^2 of the variance.
    """
    rests: dict[int, float] = {}
    for c, w in zip(components, np.exp(log_w), strict=True):
        if c.m is not None:
            rests[c.m] = rests.get(c.m, 0.0) + float(w * c.rho**2)
    return rests


def most_telling(task: Task) -> Task:
    """At most LARGEST_FIT trials: the best half, and an even choice of the others."""
    if len(task) <= LARGEST_FIT:
        return task
    order = np.argsort(np.where(np.isnan(task.y), np.inf, task.y), kind="stable")
    best, rest = order[: LARGEST_FIT // 2], np.sort(order[LARGEST_FIT // 2 :])
    even = rest[np.linspace(0, len(rest) - 1, LARGEST_FIT - len(best)).astype(int)]
    rows = np.sort(np.concatenate([best, even]))
    return Task(task.X[rows], task.y[rows], task.space)
