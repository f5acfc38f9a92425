"""Zero-mean Gaussian vectors: evidence of observations, and Gaussian-process prediction from them.

y     (N,)    observations
K     (N, N)  their covariance, noise included      W  (N, N)  its whitener, W K W^T = I
a     (N,)    K^-1 y
Ks    (S, N)  covariance of new values with y       kss_diag  (S,)  their prior variances
"""

from typing import NamedTuple

import numpy as np

from lbo.maths import Array
from lbo.maths.linalg import half_log_det, inverse, solve, whitener


def log_evidence(K: Array, y: Array) -> float:
    """log N(y; 0, K)."""
    return log_density(factorise(K, y), y)


def log_evidence_grad(K: Array, y: Array) -> tuple[float, Array, Array]:
    """The evidence and its derivatives: value, dK, dy; dK treats every entry of K as free."""
    posterior = factorise(K, y)
    W, a = posterior
    dK = 0.5 * (np.outer(a, a) - inverse(W))
    return log_density(posterior, y), dK, -a


class Posterior(NamedTuple):
    """The data, factorised once for any number of predictions."""

    W: Array
    a: Array


def factorise(K: Array, y: Array) -> Posterior:
    """Posterior of a process seen at y."""
    W = whitener(K)
    return Posterior(W, solve(W, y))


def predict(posterior: Posterior, Ks: Array, kss_diag: Array) -> tuple[Array, Array]:
    """Mean and variance of the new values."""
    W, a = posterior
    R = W @ Ks.T
    var = kss_diag - np.einsum("ns,ns->s", R, R)
    # The difference may round below zero; nothing under the prior's last digit is known.
    return Ks @ a, np.maximum(var, np.finfo(float).eps * kss_diag)


def condition(K: Array, Ks: Array, kss_diag: Array, y: Array) -> tuple[Array, Array]:
    """Mean and variance of the new values given y, in one go."""
    return predict(factorise(K, y), Ks, kss_diag)


def log_density(posterior: Posterior, y: Array) -> float:
    """log N(y; 0, K) of the y that was factorised."""
    W, a = posterior
    return float(-0.5 * (y @ a) - half_log_det(W) - 0.5 * len(y) * np.log(2.0 * np.pi))
