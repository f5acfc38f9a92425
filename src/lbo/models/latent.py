"""A remembered function g: a Gaussian process posterior kept at J points, whatever number of trials it came from.

Z        (J, D)  where it is known          u  (J,)  its mean there          R  (J, J)  a root of its covariance there
ell      (D,)    length scales              v  ()    prior variance          mean, var, cov: of g at X
k(x, x') = v Matern52(x, x'; ell)           K = k(Z, Z) + JITTER v I
    E g(x)          = k(x, Z) K^-1 u
    cov g(x), g(x') = k(x, x') - k(x, Z) K^-1 (K - R R^T) K^-1 k(Z, x')
A function of N <= J trials keeps its points themselves and is exact; beyond that the J most telling ones are kept.
g is in units of its own task: mean 0 and deviation 1 over the search space, so that tasks of any scale can share it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lbo.maths import Array, linalg, matern

JITTER = 1e-6  # of v: far below any noise that a task admits, far above what float32 loses


class Latent(NamedTuple):
    """A remembered function; see the module's first lines."""

    Z: Array
    u: Array
    R: Array
    ell: Array
    v: float


class Prepared(NamedTuple):
    """A latent function with its factorisations done once."""

    latent: Latent
    a: Array  # K^-1 u
    Q: Array  # K^-1 (K - R R^T) K^-1


def prepare(latent: Latent) -> Prepared:
    K = matern.kernel(latent.Z, latent.Z, latent.ell, latent.v)
    linalg.diagonal(K)[:] += JITTER * latent.v
    W = linalg.whitener(K)
    T = linalg.solve(W, latent.R)
    return Prepared(latent, linalg.solve(W, latent.u), linalg.inverse(W) - T @ T.T)


def mean(g: Prepared, X: Array) -> Array:
    return np.asarray(matern.kernel(X, g.latent.Z, g.latent.ell, g.latent.v) @ g.a)


def cov(g: Prepared, X1: Array, X2: Array) -> Array:
    ell, v = g.latent.ell, g.latent.v
    k1, k2 = matern.kernel(X1, g.latent.Z, ell, v), matern.kernel(X2, g.latent.Z, ell, v)
    return np.asarray(matern.kernel(X1, X2, ell, v) - k1 @ g.Q @ k2.T)


class Seen(NamedTuple):
    """Points that covariances are asked with again and again."""

    X: Array
    Qk: Array  # Q k(Z, X)


def see(g: Prepared, X: Array) -> Seen:
    return Seen(X, g.Q @ matern.kernel(g.latent.Z, X, g.latent.ell, g.latent.v))


def mean_var_cov(g: Prepared, X: Array, seen: Seen) -> tuple[Array, Array, Array]:
    """Mean and variance at X, and covariance with the points seen."""
    ell, v = g.latent.ell, g.latent.v
    k = matern.kernel(X, g.latent.Z, ell, v)
    var = v - np.vecdot(k @ g.Q, k)
    return k @ g.a, np.maximum(var, 0.0), matern.kernel(X, seen.X, ell, v) - k @ seen.Qk


def telling(X: Array, ell: Array, first: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Indices of at most `count` rows of X: `first`, then each time the row that those before predict worst.

    That is a pivoted Cholesky of the kernel matrix, stopped where the rest says nothing new.
    """
    K_diag = np.ones(len(X))
    L = np.zeros((len(X), min(count, len(X))))
    chosen: list[int] = []
    queue = list(dict.fromkeys(int(i) for i in first))
    for j in range(L.shape[1]):
        candidates = [i for i in queue if K_diag[i] > 1e-5]
        pivot = candidates[0] if candidates else int(K_diag.argmax())
        if K_diag[pivot] <= 1e-5:
            break
        queue = [i for i in candidates if i != pivot]
        column = matern.kernel(X, X[pivot : pivot + 1], ell, 1.0)[:, 0] - L[:, :j] @ L[pivot, :j]
        L[:, j] = column / np.sqrt(K_diag[pivot])
        K_diag = np.maximum(K_diag - L[:, j] ** 2, 0.0)
        K_diag[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=np.intp)


def keep(Z: Array, u: Array, S: Array, ell: Array, v: float) -> Latent:
    """The function with mean u and covariance S at Z."""
    return Latent(Z, u, linalg.root(S, least=1e-9 * v), ell, v)
