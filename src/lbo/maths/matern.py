"""Matern-5/2 covariance with one length scale per input.

X, X1, X2  (N, D)    points                ell  (D,)  length scales       v  ()  variance
S          (N, D)    X / ell
s          (N1, N2)  sqrt5 times the distances between rows of S1 and of S2
e          (N1, N2)  v exp(-s)
K          (N1, N2)  (1 + s + s^2 / 3) e
dK                   derivative of a scalar by K
"""

from typing import NamedTuple

import numpy as np

from lbo.maths import Array


class Tape(NamedTuple):
    """What `kernel_grad` needs."""

    S: Array
    s: Array
    e: Array
    K: Array


def kernel(X1: Array, X2: Array, ell: Array, v: float) -> Array:
    """K between two sets of points."""
    s = _distances(X1 / ell, X2 / ell)
    K = _polynomial(s)
    e = np.exp(np.negative(s, out=s), out=s)
    e *= v
    K *= e
    return K


def kernel_tape(X: Array, ell: Array, v: float) -> tuple[Array, Tape]:
    """K of one set of points with itself, and the tape of its derivative."""
    S = X / ell
    s = _own_distances(S)
    e = v * np.exp(-s)
    K = _polynomial(s) * e
    return K, Tape(S, s, e, K)


def kernel_grad(tape: Tape, dK: Array) -> tuple[Array, float]:
    """dlog_ell, dlog_v from dK.

    dlog_ell_d = sum_ij G_ij (S_id - S_jd)^2, the square multiplied out so that no N x N x D array is formed.
    """
    S, s, e, K = tape
    G = (5.0 / 3.0) * dK * (1.0 + s) * e
    margins = G.sum(axis=0) + G.sum(axis=1)
    dlog_ell = margins @ (S * S) - 2.0 * np.vecdot(S.T, (G @ S).T)
    return dlog_ell, float(np.vdot(dK, K))


# In place from here on: at N = 200 every spare N x N array costs more in fresh pages than in arithmetic.


def _polynomial(s: Array) -> Array:
    """1 + s + s^2 / 3."""
    p = s * (1.0 / 3.0)
    p += 1.0
    p *= s
    p += 1.0
    return p


def _distances(S1: Array, S2: Array) -> Array:
    """s, by one product: s^2 = (5 a, 5 |a|^2, 5) . (-2 b, 1, |b|^2) = 5 |a - b|^2."""
    D = S1.shape[1]
    A, B = np.empty((len(S1), D + 2)), np.empty((len(S2), D + 2))
    np.multiply(S1, 5.0, out=A[:, :D])
    A[:, D], A[:, D + 1] = 5.0 * _squares(S1), 5.0
    np.multiply(S2, -2.0, out=B[:, :D])
    B[:, D], B[:, D + 1] = 1.0, _squares(S2)
    d2 = A @ B.T
    return np.asarray(np.sqrt(np.maximum(d2, 0.0, out=d2), out=d2))


def _own_distances(S: Array) -> Array:
    """s of one set of points, symmetric to the last digit."""
    squares = _squares(S)
    d2 = np.add.outer(squares, squares)
    d2 -= 2.0 * (S @ S.T)
    d2 *= 5.0
    return np.asarray(np.sqrt(np.maximum(d2, 0.0, out=d2), out=d2))


def _squares(S: Array) -> Array:
    """|a|^2 of each row."""
    return np.asarray(np.vecdot(S, S))
