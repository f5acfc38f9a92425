"""Factors multiply back, whiteners whiten, and rounding never stops a covariance."""

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from lbo.maths import linalg


def covariance(rng, N, rank):
    B = rng.normal(size=(N, rank))
    return B @ B.T


def test_factor_is_lower_and_multiplies_back(rng):
    A = covariance(rng, 7, 9)
    L = linalg.cholesky(A)
    np.testing.assert_array_equal(L, np.tril(L))
    np.testing.assert_allclose(L @ L.T, A, rtol=1e-13, atol=1e-13)


SIZES = [0, 1, 7, linalg.SMALL, linalg.SMALL + 1, 3 * linalg.SMALL]  # inverted at once, or by halves and quarters


@pytest.mark.parametrize("N", SIZES)
def test_whitener_is_lower_and_whitens(rng, N):
    A = covariance(rng, N, 2 * N)
    W = linalg.whitener(A)
    np.testing.assert_allclose(W, np.tril(W), atol=1e-12)
    np.testing.assert_allclose(W @ A @ W.T, np.eye(N), atol=1e-11)


@pytest.mark.parametrize("N", SIZES)
def test_solution_inverse_and_determinant_are_those_of_the_matrix(rng, N):
    A, B = covariance(rng, N, 2 * N), rng.normal(size=(N, 3))
    W = linalg.whitener(A)
    np.testing.assert_allclose(linalg.solve(W, B), np.linalg.solve(A, B), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(linalg.solve(W, B[:, 0]), np.linalg.solve(A, B[:, 0]), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(linalg.inverse(W), np.linalg.inv(A), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(2 * linalg.half_log_det(W), np.linalg.slogdet(A)[1], rtol=1e-12, atol=1e-14)


def test_products_lose_nothing_that_a_model_could_see(rng):
    # The least noise that a model admits, on points that almost tell the same: means agree to a hundredth of it.
    noise = 1e-7
    x, new = np.sort(rng.random(100)), np.linspace(-0.1, 1.1, 50)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2) + noise * np.eye(100)
    Ks, y = np.exp(-0.5 * (new[:, None] - x) ** 2), np.sin(9 * x)
    L, W = np.linalg.cholesky(K), linalg.whitener(K)
    half = solve_triangular(L, Ks.T, lower=True)
    mean = half.T @ solve_triangular(L, y, lower=True)
    assert np.abs(Ks @ linalg.solve(W, y) - mean).max() < 1e-2 * np.sqrt(noise)
    assert np.abs(((W @ Ks.T) ** 2).sum(axis=0) - (half**2).sum(axis=0)).max() < 1e-3 * noise


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("rank", [1, 3])
def test_semi_definite_matrix_is_factorised_with_little_jitter(rng, scale, rank):
    A = scale * covariance(rng, 30, rank) - 1e-15 * scale * np.eye(30)  # a little below semi-definite
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(A)
    L = linalg.cholesky(A)
    np.testing.assert_allclose(L @ L.T, A, atol=1e-9 * np.diag(A).mean())


def test_zero_matrix_is_factorised():
    np.testing.assert_allclose(linalg.cholesky(np.zeros((4, 4))), 1e-5 * np.eye(4))


def test_jitter_grows_only_as_far_as_it_must(rng):
    Q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    A = Q @ np.diag([1.0, 1.0, 1.0, 1.0, -1e-6]) @ Q.T
    L = linalg.cholesky(A)
    jitter = np.diag(L @ L.T - A)
    assert np.all((jitter > 1e-6) & (jitter < 1e-5))


def test_what_is_no_covariance_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="indefinite"):
        linalg.cholesky(np.array([[1.0, 5.0], [5.0, 1.0]]))


def test_argument_is_left_alone(rng):
    A, B = covariance(rng, 5, 9), rng.normal(size=(5, 2))
    A_before, B_before = A.copy(), B.copy()
    W = linalg.whitener(A)
    W_before = W.copy()
    linalg.solve(W, B), linalg.inverse(W)
    for now, before in [(A, A_before), (B, B_before), (W, W_before)]:
        np.testing.assert_array_equal(now, before)


def test_root_multiplies_back(rng):
    B = rng.normal(size=(6, 6))
    R = linalg.root(B @ B.T, least=0.0)
    np.testing.assert_allclose(R @ R.T, B @ B.T, atol=1e-12)


def test_root_raises_what_rounding_made_negative_and_nothing_else(rng):
    V = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    values = np.array([-1e-7, 1e-12, 1e-3, 2.0])
    R = linalg.root(V * values @ V.T, least=1e-9)
    np.testing.assert_allclose(np.linalg.eigvalsh(R @ R.T), [1e-9, 1e-9, 1e-3, 2.0], rtol=1e-5)
