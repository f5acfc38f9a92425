"""Adam against its published pseudo-code, and at work on a quadratic."""

import numpy as np

from lbo.maths import adam


def textbook(params, gradient, steps, rate, b1=0.9, b2=0.999, eps=1e-8):
    """Algorithm 1 of Kingma and Ba, one number at a time."""
    theta = list(map(float, params))
    m, v = [0.0] * len(theta), [0.0] * len(theta)
    for t in range(1, steps + 1):
        g = gradient(np.array(theta))
        for i in range(len(theta)):
            m[i] = b1 * m[i] + (1 - b1) * g[i]
            v[i] = b2 * v[i] + (1 - b2) * g[i] ** 2
            theta[i] -= rate * (m[i] / (1 - b1**t)) / ((v[i] / (1 - b2**t)) ** 0.5 + eps)
    return np.array(theta)


def descend(params, gradient, steps, rate, **options):
    state = adam.init(params)
    for _ in range(steps):
        delta, state = adam.step(state, gradient(params), rate, **options)
        params = params + delta
    return params


def quadratic(rng):
    B = rng.normal(size=(4, 4))
    A, minimum = B @ B.T + np.eye(4), rng.normal(size=4)
    return minimum, lambda x: A @ (x - minimum)


def test_steps_are_those_of_the_textbook(rng):
    start, (_, gradient) = rng.normal(size=4), quadratic(rng)
    for options in ({}, {"b1": 0.8, "b2": 0.95, "eps": 1e-3}):
        expected = textbook(start, gradient, 50, 0.05, **options)
        np.testing.assert_allclose(descend(start, gradient, 50, 0.05, **options), expected, rtol=1e-11)


def test_minimum_of_a_quadratic_is_reached(rng):
    minimum, gradient = quadratic(rng)
    np.testing.assert_allclose(descend(np.zeros(4), gradient, 3000, 0.01), minimum, atol=1e-6)


def test_rate_may_differ_by_parameter(rng):
    grad = rng.normal(size=3)
    delta, _ = adam.step(adam.init(grad), grad, np.array([0.1, 0.0, 2.0]))
    np.testing.assert_allclose(delta, -np.array([0.1, 0.0, 2.0]) * np.sign(grad), rtol=1e-6)


def test_step_leaves_its_arguments_alone(rng):
    grad = rng.normal(size=3)
    before = grad.copy()
    _, state = adam.step(adam.init(grad), grad, 0.1)
    kept = state.m.copy(), state.v.copy()
    adam.step(state, grad, 0.1)
    np.testing.assert_array_equal(grad, before)
    np.testing.assert_array_equal(state.m, kept[0])
    np.testing.assert_array_equal(state.v, kept[1])
    assert state.t == 1
