"""Hyper-parameters by empirical Bayes: those of largest evidence times a weak prior.

theta  logarithms of hyper-parameters, and whatever else is learned beside them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from lbo.maths import Array


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
