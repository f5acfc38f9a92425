"""Feature maps against a literal network, and their reverse mode against autodiff."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lbo.maths import networks

SIZES = (3, 5, 4, 2)


def literal_features(w, X, sizes):
    """One network, one layer after the other, from the flat weights."""
    H, start = 2.0 * X - 1.0, 0
    for fan_in, fan_out in pairwise(sizes):
        weight = w[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        bias = w[start + fan_in * fan_out : start + (fan_in + 1) * fan_out]
        H = jnp.tanh(H @ weight + bias)
        start += (fan_in + 1) * fan_out
    return H


def test_number_of_weights_of_the_papers_network():
    assert networks.n_weights((9, 50, 50, 50)) == 10 * 50 + 51 * 50 + 51 * 50


def test_layers_are_views_that_cover_every_weight_once():
    W = np.zeros((2, networks.n_weights(SIZES)))
    layers = networks.split(W, SIZES)
    assert [(weight.shape, bias.shape) for weight, bias in layers] == [
        ((2, 3, 5), (2, 5)),
        ((2, 5, 4), (2, 4)),
        ((2, 4, 2), (2, 2)),
    ]
    for weight, bias in layers:
        weight += 1.0
        bias += 1.0
    np.testing.assert_array_equal(W, 1.0)


def test_features_are_those_of_each_network_alone(rng):
    W, X = networks.init(rng, SIZES, 3), rng.random((7, 3))
    Phi = networks.features(W, X, SIZES)
    assert Phi.shape == (3, 7, 2)
    for w, phi in zip(W, Phi, strict=True):
        np.testing.assert_allclose(phi, literal_features(w, X, SIZES), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 3])
def test_reverse_mode_is_autodiff(rng, count):
    W, X = networks.init(rng, SIZES, count), rng.random((7, 3))
    Phi, tape = networks.features_tape(W, X, SIZES)
    dPhi = rng.normal(size=Phi.shape)
    dW = networks.features_vjp(W, tape, dPhi, SIZES)
    _, vjp = jax.vjp(jax.vmap(lambda w: literal_features(w, X, SIZES)), W)
    np.testing.assert_array_equal(Phi, networks.features(W, X, SIZES))
    np.testing.assert_allclose(dW, vjp(dPhi)[0], rtol=1e-10, atol=1e-14)


def test_reverse_mode_leaves_weights_and_derivative_alone(rng):
    W, X = networks.init(rng, SIZES, 2), rng.random((7, 3))
    Phi, tape = networks.features_tape(W, X, SIZES)
    dPhi = rng.normal(size=Phi.shape)
    before = W.copy(), dPhi.copy()
    networks.features_vjp(W, tape, dPhi, SIZES)
    np.testing.assert_array_equal(W, before[0])
    np.testing.assert_array_equal(dPhi, before[1])


@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_first_draw_has_the_stated_scales(rng, gain):
    sizes = (9, 50, 50, 50)
    (w1, b1), (w2, b2), (w3, b3) = networks.split(networks.init(rng, sizes, 40, gain=gain), sizes)
    # 2,000 biases or more: the sample std is within 1 / sqrt(4000) = 1.6 % (one sigma) of the true one.
    for draws, std in [(w1, gain / 3), (b1, gain), (w2, gain / 50**0.5), (w3, gain / 50**0.5)]:
        np.testing.assert_allclose(draws.std(), std, rtol=0.06)
        np.testing.assert_allclose(draws.mean(), 0.0, atol=0.1 * std)
    np.testing.assert_array_equal([b2, b3], 0.0)


@pytest.mark.parametrize("D", [1, 2, 16])
def test_fresh_features_vary_over_the_cube_without_saturating(rng, D):
    sizes = (D, 50, 50, 50)
    Phi = networks.features(networks.init(rng, sizes, 4), rng.random((500, D)), sizes)
    assert Phi.std(axis=1).mean() > 0.1
    assert np.mean(np.abs(Phi) > 0.99) < 0.01


def test_draw_depends_on_the_generator_alone():
    first, again = (networks.init(np.random.default_rng(7), SIZES, 2) for _ in range(2))
    np.testing.assert_array_equal(first, again)
