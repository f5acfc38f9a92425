"""Weights of a ranking-weighted Gaussian process ensemble (Feurer, Letham, Hutter and Bakshy 2018).

N       trials of the task                z  (N,)    their values
f       (S, N)  draws of one model's function at the trials
losses  (M, S)  pairs of trials that each draw of each model puts in the wrong order; the last model is the task's own

A model's weight is how often its draw has the fewest wrong pairs. The task's own model has seen the values, so each of
its predictions is made without the trial in question, and compared with the values of the others.
"""

from __future__ import annotations

import numpy as np

from lbo.space import Array

DILUTION = 0.95  # a past model goes whose median loss is above this quantile of the own model's


def ranking_losses(f: Array, z: Array) -> Array:
    """(S,) pairs in the wrong order."""
    drawn = f[:, :, None] < f[:, None, :]
    return _wrong(drawn, z)


def own_ranking_losses(mean: Array, std: Array, z: Array, rng: np.random.Generator, draws: int) -> Array:
    """(S,) the same for the task's own model, given what it expects of each trial without having seen it."""
    f = mean + std * rng.standard_normal((draws, len(z)))
    return _wrong(f[:, :, None] < z, z)


def _wrong(drawn: Array, z: Array) -> Array:
    return (drawn != (z[:, None] < z)).sum(axis=(1, 2))


def left_out(K: Array, r: Array) -> tuple[Array, Array]:
    """Mean (of r) and deviation of each residual given all others, under N(0, K)."""
    precision = np.linalg.inv(K)
    var = 1.0 / np.diag(precision)
    return r - var * (precision @ r), np.sqrt(var)


def weights(losses: Array, rng: np.random.Generator) -> Array:
    """(M,) how often each model is the best, ties drawn by lot, of those that are not diluted away."""
    own = losses[-1]
    kept = np.append(np.median(losses[:-1], axis=1) <= np.quantile(own, DILUTION), True)
    lots = rng.random(losses.shape)  # below one: they decide ties only
    best = np.where(kept[:, None], losses + lots, np.inf).argmin(axis=0)
    return np.bincount(best, minlength=len(losses)) / len(own)
