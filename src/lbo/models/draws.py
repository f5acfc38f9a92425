"""Draws of a task's function under the default model, its hyper-parameters uncertain as well.

theta    (P + 3,)  hyper-parameters of one hypothesis, as in `lifelong`
f        (n, len(X))  draws at X, jointly, in the user's units

For choosing the next trial the likeliest theta will do, since only the order of the candidates counts. For saying how
much there is to gain it will not: two trials of nearly the same value make the likeliest scale tiny. So theta is drawn
by elliptical slice sampling (Murray, Adams and MacKay 2010), which needs no tuning where priors are normal; the scale's
prior is what past tasks' scales were, and hypotheses are weighed anew under it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from lbo.maths import Array, linalg
from lbo.models.base import Task
from lbo.models.component import KAPPA, Component, Hypothesis, condition, most_telling, prior_cov, prior_mean
from lbo.models.families import Past, recall
from lbo.models.lifelong import ELL, LOGIT_RHO2, NOISE, SCALE, LifelongPosterior, Prior, Problem
from lbo.models.output import Output

if TYPE_CHECKING:
    from lbo.memory import Memory

THETAS = 40  # draws of the hyper-parameters over all hypotheses
BURN_IN = 10  # of each hypothesis, which start at its likeliest ones
WORST = 3.0  # of z: where values are warped, draws beyond are so bad in the user's units that they rule every mean


def functions(
    task: Task, memory: Memory | None, posterior: LifelongPosterior, X: Array, rng: np.random.Generator, n: int
) -> Array:
    """About n draws of f."""
    past, scale = recall(task.space, memory), _past_scale(memory)
    problems = [_problem(task, past, h, posterior.output, scale) for h in posterior.finalists]
    hypotheses = [problem.solve(problem.start()[1]) for problem in problems]
    score = np.array([h.score for h in hypotheses])
    counts = rng.multinomial(THETAS, np.exp(score - logsumexp(score)))
    telling = most_telling(task)
    z = posterior.output.to_z(telling.y)
    drawn = []
    for problem, hypothesis, count in zip(problems, hypotheses, counts, strict=True):
        g = None if hypothesis.m is None else past.functions[hypothesis.m]
        for theta in _thetas(problem, hypothesis.theta, count, rng):
            component = condition(telling, z, g, hypothesis._replace(theta=theta))
            drawn.append(_values(component, X, rng, n // THETAS))
    return posterior.to_user(np.minimum(np.vstack(drawn), WORST))


def _past_scale(memory: Memory | None) -> tuple[float, float] | None:
    """Mean and deviation of the logarithms of how far past tasks' values lay apart, in the user's units."""
    if memory is None:
        return None
    logs = np.array([record.hyper["log_width"] for record in memory.records])
    # As if two more tasks had been off by a factor of e.
    return float(logs.mean()), float(np.sqrt((2.0 + ((logs - logs.mean()) ** 2).sum()) / (2 + len(logs))))


def _problem(task: Task, past: Past, h: Hypothesis, out: Output, scale: tuple[float, float] | None) -> Problem:
    """The posterior of theta, with what past tasks say of log s."""
    problem = Problem(task, past, h.m, out)
    if h.sign < 0:
        problem = problem.upside_down()
    if scale is not None:
        mean, std = problem.prior.mean.copy(), problem.prior.std.copy()
        mean[-1], std[-1] = np.clip(scale[0] - np.log(out.width), *SCALE), scale[1]
        problem.prior = Prior(mean, std)
    return problem


def _thetas(problem: Problem, start: Array, count: int, rng: np.random.Generator) -> list[Array]:
    if not count:
        return []
    prior = problem.prior
    low, high = np.array([ELL] * (len(start) - 3) + [LOGIT_RHO2, NOISE, SCALE]).T

    def log_likelihood(theta: Array) -> float:
        if not ((theta >= low) & (theta <= high)).all():
            return -np.inf
        away = (theta - prior.mean) / prior.std
        return 0.5 * float(away @ away) - problem(theta)[0]

    chain = [start]
    for _ in range(BURN_IN + count):
        chain.append(_step(chain[-1], log_likelihood, prior, rng))
    return chain[-count:]


def _step(x: Array, log_likelihood: Callable[[Array], float], prior: Prior, rng: np.random.Generator) -> Array:
    """The next of a chain: a point of the ellipse through x and a draw of the prior, above a random height."""
    other = prior.std * rng.standard_normal(len(x))
    height = log_likelihood(x) + np.log(rng.random())
    angle = rng.uniform(0, 2 * np.pi)
    low, high = angle - 2 * np.pi, angle
    while high - low > 1e-9:
        proposed = prior.mean + (x - prior.mean) * np.cos(angle) + other * np.sin(angle)
        if log_likelihood(proposed) > height:
            return np.asarray(proposed)
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)
    return x


def _values(c: Component, X: Array, rng: np.random.Generator, n: int) -> Array:
    """(n, len(X)) draws of f given theta, in units of z."""
    k = prior_cov(c, X, c.X)
    half = c.fit.W @ k.T
    cov = prior_cov(c, X, X) - half.T @ half
    if not len(c.X):
        cov = cov - KAPPA  # without a trial the offset is anything, and what matters is differences
    mean = prior_mean(c, X) + k @ c.fit.a
    return np.asarray(c.s * (mean + rng.standard_normal((n, len(X))) @ linalg.cholesky(cov).T))
