"""The covariance against scikit-learn's and against its formula; its derivative against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process.kernels import Matern

from lbo.maths import matern

ELL = np.array([0.3, 1.0, 4.0])
V = 1.7


def literal_kernel(X1, X2, log_ell, log_v):
    """The formula over every pair, one length scale per input."""
    difference = (X1[:, None] - X2[None]) / jnp.exp(log_ell)
    r2 = jnp.sum(difference**2, axis=2)
    r = jnp.where(r2 > 0, jnp.sqrt(jnp.where(r2 > 0, r2, 1.0)), 0.0)
    return jnp.exp(log_v) * (1 + jnp.sqrt(5) * r + 5 / 3 * r2) * jnp.exp(-jnp.sqrt(5) * r)


def test_covariance_is_that_of_scikit_learn_and_of_the_formula(rng):
    X1, X2 = rng.random((6, 3)), rng.random((4, 3))
    K = matern.kernel(X1, X2, ELL, V)
    np.testing.assert_allclose(K, V * Matern(length_scale=ELL, nu=2.5)(X1, X2), rtol=1e-12)
    np.testing.assert_allclose(K, literal_kernel(X1, X2, np.log(ELL), np.log(V)), rtol=1e-12)


def test_points_covary_with_themselves_by_the_variance(rng):
    X = rng.random((6, 3))
    K, _ = matern.kernel_tape(X, ELL, V)
    np.testing.assert_allclose(np.diag(K), V, rtol=1e-13)
    np.testing.assert_allclose(K, matern.kernel(X, X, ELL, V), rtol=1e-14)
    np.testing.assert_array_equal(K, K.T)


def test_derivative_is_autodiff(rng):
    X = rng.random((7, 3))
    X[3] = X[0]  # a point met twice, at distance zero
    dK = rng.normal(size=(7, 7))  # not symmetric on purpose
    _, vjp = jax.vjp(lambda *hypers: literal_kernel(X, X, *hypers), np.log(ELL), np.log(V))
    _, tape = matern.kernel_tape(X, ELL, V)
    for ours, theirs in zip(matern.kernel_grad(tape, dK), vjp(jnp.asarray(dK)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_short_length_scales_do_not_spoil_repeated_points(rng):
    X = np.repeat(rng.random((5, 3)), 2, axis=0)
    K = matern.kernel(X, X, np.full(3, 1e-3), V)
    np.testing.assert_allclose(K, V * np.kron(np.eye(5), np.ones((2, 2))), atol=1e-8)


def test_no_points_give_an_empty_covariance(rng):
    assert matern.kernel(rng.random((4, 3)), np.zeros((0, 3)), ELL, V).shape == (4, 0)
