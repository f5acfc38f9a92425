"""Gates against the process they are drawn from, and derivatives against autodiff.

Statistics: fixed seeds, and every margin is five standard errors of the sample at hand, so a right sampler
passes at nearly every seed and a wrong one, held to the very same check, is shown to fail.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, logit

from lbo.maths import buffet

ALPHAS = [0.5, 1.0, 2.0, 5.0]
TAU = 0.1


def within_five_standard_errors(samples, expected):
    """Whether the mean over the first axis is the expected one, everywhere."""
    samples = np.asarray(samples, dtype=float)
    error = samples.std(axis=0) / np.sqrt(len(samples)) + 1e-12
    return bool(np.all(np.abs(samples.mean(axis=0) - expected) < 5 * error))


def stick_frequencies(alpha, M):
    """E pi_m = (alpha / (alpha + 1))^m."""
    return (alpha / (alpha + 1)) ** np.arange(1, M + 1)


def wrong(alpha):
    return 1.3 * alpha


@pytest.mark.parametrize("alpha", ALPHAS)
def test_stick_gates_open_as_often_as_the_buffet_says(rng, alpha):
    pi = np.array([buffet.sticks(rng, alpha, 6) for _ in range(4000)])
    Z = buffet.concrete(buffet.log_odds(pi), rng.random(pi.shape), TAU) > 0
    assert within_five_standard_errors(Z, stick_frequencies(alpha, 6))
    assert not within_five_standard_errors(Z, stick_frequencies(wrong(alpha), 6))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_expected_number_of_open_gates_is_alpha(rng, alpha):
    M = 150  # truncation keeps 1 - (alpha / (alpha + 1))^M of alpha: all but 1e-12 at alpha = 5
    pi = np.array([buffet.sticks(rng, alpha, M) for _ in range(4000)])
    assert within_five_standard_errors(pi.sum(axis=1), alpha)
    assert not within_five_standard_errors(pi.sum(axis=1), wrong(alpha))


def test_sticks_shrink(rng):
    pi = buffet.sticks(rng, 2.0, 30)
    assert np.all(np.diff(pi, prepend=1.0, append=0.0) < 0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_every_customer_takes_alpha_dishes_and_all_take_the_harmonic_sum(rng, alpha):
    T = 6
    draws = [buffet.restaurant(rng, alpha, T) for _ in range(4000)]
    taken = [Z.sum(axis=1) for Z in draws]
    offered = [Z.shape[1] for Z in draws]
    harmonic = np.sum(1 / np.arange(1, T + 1))
    assert within_five_standard_errors(taken, alpha)
    assert within_five_standard_errors(offered, alpha * harmonic)
    assert not within_five_standard_errors(taken, wrong(alpha))
    assert not within_five_standard_errors(offered, wrong(alpha) * harmonic)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_customers_share_as_many_dishes_as_the_sticks_do(rng, alpha):
    # Two customers share sum_m E pi_m^2 = sum_m (alpha / (alpha + 2))^m = alpha / 2 dishes, whoever they are.
    draws = [buffet.restaurant(rng, alpha, 5) for _ in range(4000)]
    shared = [[np.sum(Z[0] & Z[1]), np.sum(Z[0] & Z[4]), np.sum(Z[3] & Z[4])] for Z in draws]
    assert within_five_standard_errors(shared, alpha / 2)
    assert not within_five_standard_errors(shared, wrong(alpha) / 2)


def test_every_dish_has_been_taken(rng):
    for _ in range(50):
        Z = buffet.restaurant(rng, 2.0, 8)
        assert Z.shape[0] == 8
        assert Z.any(axis=0).all()


def test_restaurant_log_odds_are_those_of_the_customers_rule():
    odds = buffet.restaurant_log_odds(np.array([1.0, 3.0, 2.5]), 4, 2.0)
    np.testing.assert_allclose(odds, np.log([1 / 3, 3 / 1, 2.5 / 1.5]))


def test_unused_networks_share_the_new_dishes():
    t, alpha = 5, 2.0
    none_new = 1 - expit(buffet.restaurant_log_odds(np.array([0.0, 3.0, 0.0]), t, alpha)[[0, 2]])
    np.testing.assert_allclose(np.prod(none_new), np.exp(-alpha / t))


def test_restaurant_log_odds_stay_finite():
    assert np.isfinite(buffet.restaurant_log_odds(np.array([0.0, 10.0, 1e-300]), 10, 1e-300)).all()


@pytest.mark.parametrize("log_gamma", [-3.0, 0.0, 1.5])
def test_gate_is_open_with_probability_gamma_over_one_plus_gamma(rng, log_gamma):
    opened = buffet.concrete(np.full(20_000, log_gamma), rng.random(20_000), TAU) > 0
    gamma = np.exp(log_gamma)
    assert within_five_standard_errors(opened, gamma / (1 + gamma))
    assert not within_five_standard_errors(opened, 1.3 * gamma / (1 + 1.3 * gamma))


def test_gate_is_the_papers_formula_with_its_sign_put_right(rng):
    log_gamma, u = rng.normal(size=5), rng.random(5)
    z = expit((log_gamma + np.log(u) - np.log(1 - u)) / TAU)
    np.testing.assert_allclose(expit(buffet.concrete(log_gamma, u, TAU)), z, rtol=1e-10)


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("log_gamma", [-3.0, 0.0, 1.5])
def test_density_integrates_to_one(log_gamma, tau):
    low, high = (log_gamma - 60) / tau, (log_gamma + 60) / tau
    total, _ = quad(lambda l: np.exp(buffet.log_density(l, log_gamma, tau)), low, high)
    np.testing.assert_allclose(total, 1.0, rtol=1e-7)


@pytest.mark.parametrize("log_gamma", [-3.0, 0.0, 1.5])
def test_density_is_that_of_the_samples(rng, log_gamma):
    samples = buffet.concrete(np.full(20_000, log_gamma), rng.random(20_000), TAU)
    bins = list(pairwise(np.linspace(-60, 60, 25)))
    inside = np.array([(low < samples) & (samples <= high) for low, high in bins]).T

    def histogram_fits(log_gamma):
        masses = [quad(lambda l: np.exp(buffet.log_density(l, log_gamma, TAU)), *edges)[0] for edges in bins]
        return within_five_standard_errors(inside, masses)

    assert histogram_fits(log_gamma)
    assert not histogram_fits(log_gamma + 0.2)


def literal_log_density(l, log_gamma, tau):
    """Density of z = sigmoid(l) on (0, 1) as Maddison et al. print it, carried over to l."""
    z = jax.nn.sigmoid(l)
    gamma = jnp.exp(log_gamma)
    density = tau * gamma * z ** (-tau - 1) * (1 - z) ** (-tau - 1) / (gamma * z**-tau + (1 - z) ** -tau) ** 2
    return jnp.log(density * z * (1 - z))


def literal_kl(l, log_gamma, pi, tau):
    prior = jnp.log(pi / (1 - pi))
    return jnp.sum(literal_log_density(l, log_gamma, tau) - literal_log_density(l, prior, tau))


def gates(rng, M=6):
    return 3 * rng.normal(size=M), rng.normal(size=M), rng.uniform(0.05, 0.95, size=M)


@pytest.mark.parametrize("tau", [0.1, 0.7])
def test_density_and_its_derivative_are_autodiff(rng, tau):
    l, log_gamma, _ = gates(rng)
    value, *derivatives = buffet.log_density_grad(l, log_gamma, tau)
    np.testing.assert_allclose(value, buffet.log_density(l, log_gamma, tau), rtol=1e-14)
    np.testing.assert_allclose(value, literal_log_density(l, log_gamma, tau), rtol=1e-10)
    expected = jax.grad(lambda *args: literal_log_density(*args).sum(), argnums=(0, 1))(l, log_gamma, tau)
    for ours, theirs in zip(derivatives, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("tau", [0.1, 0.7])
def test_divergence_and_its_derivative_are_autodiff(rng, tau):
    l, log_gamma, pi = gates(rng)
    value, *derivatives = buffet.gate_kl_grad(l, log_gamma, pi, tau)
    np.testing.assert_allclose(value, buffet.gate_kl(l, log_gamma, pi, tau), rtol=1e-14)
    np.testing.assert_allclose(value, literal_kl(l, log_gamma, pi, tau), rtol=1e-9)
    expected = jax.grad(literal_kl, argnums=(0, 1))(l, log_gamma, pi, tau)
    for ours, theirs in zip(derivatives, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


def test_whole_derivative_through_the_sample_is_autodiff(rng):
    _, log_gamma, pi = gates(rng)
    u = rng.uniform(0.2, 0.8, size=6)  # the literal density needs z away from 0 and 1
    l = buffet.concrete(log_gamma, u, 0.7)
    _, dl, dlog_gamma = buffet.gate_kl_grad(l, log_gamma, pi, 0.7)

    def through(log_gamma):
        return literal_kl((log_gamma + jnp.log(u / (1 - u))) / 0.7, log_gamma, pi, 0.7)

    np.testing.assert_allclose(dl / 0.7 + dlog_gamma, jax.grad(through)(log_gamma), rtol=1e-8, atol=1e-12)


def test_divergence_averages_to_the_exact_one(rng):
    # KL is the same in l and in the logistic a, whatever tau: integrate it there.
    log_gamma, pi = 1.0, 0.2
    samples = buffet.concrete(np.full(20_000, log_gamma), rng.random(20_000), TAU)
    estimates = [buffet.gate_kl(l, log_gamma, pi, TAU) for l in samples]

    def integrand(l, pi):
        log_q, log_p = (buffet.log_density(l, g, 1.0) for g in (log_gamma, logit(pi)))
        return np.exp(log_q) * (log_q - log_p)

    assert within_five_standard_errors(estimates, quad(integrand, -80, 80, args=(pi,))[0])
    assert not within_five_standard_errors(estimates, quad(integrand, -80, 80, args=(1.3 * pi,))[0])


def test_sure_priors_keep_the_divergence_finite():
    pi = np.array([0.0, 1e-300, 1.0, 1.0 - 1e-17])
    value, dl, dlog_gamma = buffet.gate_kl_grad(np.array([400.0, -400.0, 1e5, -1e5]), np.zeros(4), pi, TAU)
    assert np.isfinite([value, *dl, *dlog_gamma]).all()
    np.testing.assert_allclose(buffet.log_odds(pi), [-buffet.SURE, -buffet.SURE, buffet.SURE, buffet.SURE])
    np.testing.assert_allclose(buffet.log_odds(np.array([0.3])), np.log(0.3 / 0.7))
