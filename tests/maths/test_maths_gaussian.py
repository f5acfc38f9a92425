"""Evidence and conditioning against the joint Gaussian, and derivatives against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import multivariate_normal

from lbo.maths import gaussian


def joint(rng, N):
    B = rng.normal(size=(N, N + 2))
    return B @ B.T + 0.1 * np.eye(N)


def literal_evidence(K, y):
    return -0.5 * (y @ jnp.linalg.inv(K) @ y + jnp.linalg.slogdet(K)[1] + len(y) * jnp.log(2 * jnp.pi))


def test_evidence_is_the_density(rng):
    K, y = joint(rng, 6), rng.normal(size=6)
    np.testing.assert_allclose(gaussian.log_evidence(K, y), multivariate_normal.logpdf(y, np.zeros(6), K))


def test_hand_derivative_is_autodiff(rng):
    K, y = joint(rng, 6), rng.normal(size=6)
    value, dK, dy = gaussian.log_evidence_grad(K, y)
    expected = jax.grad(literal_evidence, argnums=(0, 1))(K, y)
    assert value == gaussian.log_evidence(K, y)
    np.testing.assert_allclose(dK, expected[0], rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(dy, expected[1], rtol=1e-8, atol=1e-11)


def test_prediction_is_the_bayes_rule_of_the_joint_density(rng):
    # p(f | y) = p(f, y) / p(y), by densities alone: no formula for the conditional is used.
    C, y = joint(rng, 6), rng.normal(size=5)
    K, Ks, kss_diag = C[:5, :5], C[5:, :5], np.diag(C)[5:]
    mean, var = gaussian.condition(K, Ks, kss_diag, y)
    for f in (-1.0, 0.3, 2.0):
        log_joint = multivariate_normal.logpdf(np.append(y, f), np.zeros(6), C)
        log_conditional = multivariate_normal.logpdf(f, mean[0], var[0])
        np.testing.assert_allclose(log_conditional, log_joint - gaussian.log_evidence(K, y), rtol=1e-9)


def test_one_factor_serves_many_batches(rng):
    C, y = joint(rng, 9), rng.normal(size=5)
    posterior = gaussian.factorise(C[:5, :5], y)
    whole = gaussian.condition(C[:5, :5], C[5:, :5], np.diag(C)[5:], y)
    parts = [gaussian.predict(posterior, C[i : i + 2, :5], np.diag(C)[i : i + 2]) for i in (5, 7)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-12)


def test_variance_at_a_noiseless_observation_is_tiny_and_positive(rng):
    K, y = joint(rng, 6), rng.normal(size=6)
    mean, var = gaussian.condition(K, K, np.diag(K), y)
    np.testing.assert_allclose(mean, y, rtol=1e-8)
    assert np.all((var > 0) & (var < 1e-10))


def test_no_observations_leave_the_prior():
    mean, var = gaussian.condition(np.zeros((0, 0)), np.zeros((3, 0)), np.full(3, 2.0), np.zeros(0))
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_array_equal(var, 2.0)
