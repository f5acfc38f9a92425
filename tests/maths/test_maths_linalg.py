"""Factors multiply back, solves solve, and rounding never stops a covariance."""

import numpy as np
import pytest

from lbo.maths import linalg


def covariance(rng, N, rank):
    B = rng.normal(size=(N, rank))
    return B @ B.T


def test_factor_is_lower_and_multiplies_back(rng):
    A = covariance(rng, 7, 9)
    L = linalg.cholesky(A)
    np.testing.assert_array_equal(L, np.tril(L))
    np.testing.assert_allclose(L @ L.T, A, rtol=1e-13, atol=1e-13)


def test_solves_inverse_and_determinant_are_those_of_the_matrix(rng):
    A, B = covariance(rng, 7, 9), rng.normal(size=(7, 3))
    L = linalg.cholesky(A)
    np.testing.assert_allclose(linalg.solve_lower(L, B), np.linalg.solve(L, B), rtol=1e-10)
    np.testing.assert_allclose(linalg.solve(L, B), np.linalg.solve(A, B), rtol=1e-8)
    np.testing.assert_allclose(linalg.inverse(L), np.linalg.inv(A), rtol=1e-8)
    np.testing.assert_allclose(2 * linalg.half_log_det(L), np.linalg.slogdet(A)[1], rtol=1e-12)


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
    L = linalg.cholesky(A)
    L_before = L.copy()
    linalg.solve_lower(L, B), linalg.solve(L, B), linalg.inverse(L)
    for now, before in [(A, A_before), (B, B_before), (L, L_before)]:
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
