"""Covariances factorised, and what is solved with the factors.

A     (N, N)  symmetric, positive semi-definite up to rounding
L     (N, N)  lower Cholesky factor, A = L L^T
W     (N, N)  L^-1, which whitens: W A W^T = I and A^-1 = W^T W; lower triangular up to rounding
B     (N,) or (N, S)  right-hand sides
Whatever is solved is a product with W: at a task's sizes BLAS multiplies three to five times faster than LAPACK solves
triangular systems, and what that loses of the last digits is far below any noise that a model admits. NumPy is enough
for it, and SciPy's linear algebra takes a process a seventh of a second to import.
"""

import numpy as np

from lbo.maths import Array

# Fractions of the mean diagonal: the first is far above rounding (2e-16 N), the last drowns any rounding.
JITTERS = 10.0 ** np.arange(-10, 1)
SMALL = 48  # rows; a larger triangle is inverted by halves, since products are faster still than NumPy's inverse


def cholesky(A: Array) -> Array:
    """L of A, of A + jitter I where A has lost definiteness to rounding.

    The jitter grows tenfold from 1e-10 to 1 times the mean of the diagonal (of 1 for a zero matrix). What is
    still refused there is no covariance, and `numpy.linalg.LinAlgError` says so: more would hide a mistake.
    """
    L = _cholesky_or_none(A)
    if L is not None:
        return L
    scale = float(np.abs(np.diag(A)).mean()) or 1.0
    for jitter in scale * JITTERS:
        L = _cholesky_or_none(A + jitter * np.eye(len(A)))
        if L is not None:
            return L
    raise np.linalg.LinAlgError("not a covariance: indefinite far beyond rounding")


def _cholesky_or_none(A: Array) -> Array | None:
    try:
        return np.asarray(np.linalg.cholesky(A))
    except np.linalg.LinAlgError:
        return None


def whitener(A: Array) -> Array:
    """W of A, with the jitter of `cholesky`."""
    return _inverse_of_lower(cholesky(A))


def _inverse_of_lower(L: Array) -> Array:
    """L^-1: [[P, 0], [Q, R]]^-1 = [[P^-1, 0], [-R^-1 Q P^-1, R^-1]]."""
    N = len(L)
    if N <= SMALL:
        return np.asarray(np.linalg.inv(L))
    h = N // 2
    W = np.zeros((N, N))
    W[:h, :h] = _inverse_of_lower(L[:h, :h])
    W[h:, h:] = _inverse_of_lower(L[h:, h:])
    W[h:, :h] = -(W[h:, h:] @ L[h:, :h]) @ W[:h, :h]
    return W


def solve(W: Array, B: Array) -> Array:
    """A^-1 B."""
    return np.asarray(W.T @ (W @ B))


def inverse(W: Array) -> Array:
    """A^-1."""
    return np.asarray(W.T @ W)


def half_log_det(W: Array) -> float:
    """1/2 log |A|."""
    return -float(np.log(np.diag(W)).sum())


def root(S: Array, least: float) -> Array:
    """R with R R^T = S, its eigenvalues raised to `least`.

    A posterior covariance, a small difference of large matrices, may be off by more than it amounts to where nearly
    everything is known; adding to its diagonal until `cholesky` takes it would drown what it says elsewhere.
    """
    values, vectors = np.linalg.eigh(0.5 * (S + S.T))
    return np.asarray(vectors * np.sqrt(np.maximum(values, least)))


def diagonal(A: Array) -> Array:
    """A view of the diagonal that can be written to."""
    return np.asarray(np.einsum("ii->i", A))
