"""Cholesky factors and what is solved with them.

A     (N, N)  symmetric, positive semi-definite up to rounding
L     (N, N)  lower Cholesky factor, A = L L^T
B     (N,) or (N, S)  right-hand sides
LAPACK is called directly: at one task's sizes (N near 50) SciPy's checks cost more than the factorisation.
It refuses empty arrays, which are a task without trials, so these pass through.
"""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs

from lbo.maths import Array

# Fractions of the mean diagonal: the first is far above rounding (2e-16 N), the last drowns any rounding.
JITTERS = 10.0 ** np.arange(-10, 1)


def cholesky(A: Array) -> Array:
    """Lower factor of A, of A + jitter I where A has lost definiteness to rounding.

    The jitter grows tenfold from 1e-10 to 1 times the mean of the diagonal (of 1 for a zero matrix). What is
    still refused there is no covariance, and `numpy.linalg.LinAlgError` says so: more would hide a mistake.
    """
    L, failed = dpotrf(A.T, lower=1)  # A = A^T, and A^T of a C-ordered A needs no reordering
    if not failed:
        return np.asarray(L)
    scale = float(np.abs(np.diag(A)).mean()) or 1.0
    for jitter in scale * JITTERS:
        L, failed = dpotrf(A.T + jitter * np.eye(len(A)), lower=1)
        if not failed:
            return np.asarray(L)
    raise np.linalg.LinAlgError("not a covariance: indefinite far beyond rounding")


def root(S: Array, least: float) -> Array:
    """R with R R^T = S, its eigenvalues raised to `least`.

    A posterior covariance, a small difference of large matrices, may be off by more than it amounts to where nearly
    everything is known; adding to its diagonal until `cholesky` takes it would drown what it says elsewhere.
    """
    values, vectors = np.linalg.eigh(0.5 * (S + S.T))
    return np.asarray(vectors * np.sqrt(np.maximum(values, least)))


def solve_lower(L: Array, B: Array) -> Array:
    """L^-1 B."""
    return np.asarray(dtrtrs(L, B, lower=1)[0]) if B.size else B


def solve(L: Array, B: Array) -> Array:
    """A^-1 B."""
    return np.asarray(dpotrs(L, B, lower=1)[0]) if B.size else B


def inverse(L: Array) -> Array:
    """A^-1, both triangles."""
    half = np.asarray(dpotri(L, lower=1)[0]) if L.size else L
    both = half + half.T  # above its diagonal half is zero
    diagonal(both)[:] *= 0.5
    return both


def diagonal(A: Array) -> Array:
    """A view of the diagonal that can be written to."""
    return np.asarray(np.einsum("ii->i", A))


def half_log_det(L: Array) -> float:
    """1/2 log |A|."""
    return float(np.log(np.diag(L)).sum())
