"""DNGO, NN and ABLR: the contract, and derivatives against autodiff."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optuna.distributions import FloatDistribution

from lbo.maths import networks
from lbo.models import dngo
from lbo.models.ablr import ABLR, _remembered_network
from lbo.models.base import Task, standardise
from lbo.models.dngo import DNGO, NN
from model_contract import RELATIVE, SEED, branin_task, cube, error, every_check, of_models, points, remember, space_of

SIZES = (2, 4, 5, 3)


@pytest.fixture(autouse=True)
def float64_autodiff():
    with jax.enable_x64(True):
        yield


@every_check
@of_models(DNGO(), NN(units=60), ABLR())
def test_contract(model, check):
    check(model)


def literal_last_layer(W, X, sizes):
    H, start = 2 * X - 1, 0
    for fan_in, fan_out in pairwise(sizes):
        weight = W[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        H = jnp.tanh(H @ weight + W[start : start + fan_out])
        start += fan_out
    return jnp.column_stack([H, jnp.ones(len(X))])


@jax.jit
def literal_evidence(Phi, z, lam, beta):
    K = Phi @ Phi.T / lam + jnp.eye(len(z)) / beta
    return -0.5 * (z @ jnp.linalg.solve(K, z) + jnp.linalg.slogdet(K)[1] + len(z) * jnp.log(2 * jnp.pi))


def weights():
    return networks.init(np.random.default_rng(3), SIZES, 1)[0]


def test_squared_error_gradient_is_autodiff():
    X, z = points(2, 9), np.random.default_rng(1).normal(size=9)
    params = np.append(weights(), np.random.default_rng(2).normal(size=4))

    def literal(params):
        return 0.5 * jnp.mean((literal_last_layer(params[:-4], X, SIZES) @ params[-4:] - z) ** 2)

    value, dparams = dngo.squared_error_grad(params, X, z, SIZES)
    expected, dexpected = jax.jit(jax.value_and_grad(literal))(params)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(dparams, dexpected, rtol=1e-7, atol=1e-12)


def test_gradient_of_the_sum_of_evidences_is_autodiff():
    sizes_of_tasks = (3, 1, 7)  # the linear layer has 4 weights: fewer trials than that, and more
    task = np.repeat(np.arange(3), sizes_of_tasks)
    X, z = points(2, 11), np.random.default_rng(1).normal(size=11)
    params = np.append(weights(), np.log([[2.0, 50.0], [0.5, 8.0], [1.0, 200.0]]))

    def literal(params):
        Phi, precisions = literal_last_layer(params[:-6], X, SIZES), jnp.exp(params[-6:].reshape(3, 2))
        return sum(literal_evidence(Phi[task == t], z[task == t], *precisions[t]) for t in range(3))

    value, dparams = dngo.log_evidence_grad(params, X, z, task, SIZES)
    expected, dexpected = jax.jit(jax.value_and_grad(literal))(params)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(dparams, dexpected, rtol=1e-7, atol=1e-10)


def test_prediction_is_the_textbook_formula():
    task, X = branin_task(12), points(2, 9, 1)
    posterior = DNGO().fit(task, None, SEED, None)
    z, _ = standardise(task.y)
    Phi, new = (literal_last_layer(posterior.W, points, posterior.sizes) for points in (task.X, X))
    lam, beta = posterior.lam, posterior.beta
    covariance = np.linalg.inv(lam * np.eye(51) + beta * Phi.T @ Phi)
    _, mean, var = posterior.mixture(X)
    np.testing.assert_allclose(mean[0], beta * new @ covariance @ Phi.T @ z, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(var[0], np.diag(new @ covariance @ new.T), rtol=1e-5)
    np.testing.assert_allclose(posterior.best, posterior.mixture(task.X)[1].min(), rtol=1e-6)


@pytest.mark.parametrize("train", [dngo.train_squared_error, lambda W, X, z, sizes: dngo.train_evidence(
    W, X, z, np.zeros(len(z), dtype=int), sizes)], ids=["squared error", "evidence"])  # fmt: skip
def test_training_makes_better_features(train):
    task = branin_task(30)
    z, _ = standardise(task.y)
    sizes = dngo.layers(2, 50)
    W0 = dngo.fresh_network(sizes, SEED)
    drawn, trained = dngo.last_layer(W0, task.X, sizes), dngo.last_layer(train(W0, task.X, z, sizes), task.X, sizes)
    assert evidence_of(trained, z) > evidence_of(drawn, z) + 5


def evidence_of(Phi, z):
    return float(literal_evidence(Phi, z, *np.exp(dngo.learn_precisions(Phi, z))))


def test_learned_precisions_are_a_maximum():
    task = branin_task(20)
    z, _ = standardise(task.y)
    sizes = dngo.layers(2, 30)
    Phi = dngo.last_layer(dngo.fresh_network(sizes, SEED), task.X, sizes)
    prior = dngo.precision_prior(31)

    def height(logs):
        return float(literal_evidence(Phi, z, *np.exp(logs))) + prior.log_density_grad(logs)[0]

    logs = dngo.learn_precisions(Phi, z)
    steps = np.random.default_rng(0).normal(0, 0.3, (30, 2))
    assert all(height(np.clip(logs + step, prior.low, prior.high)) < height(logs) + 1e-3 for step in steps)


def test_networks_are_trained_at_checkpoints_only():
    task = branin_task(23)
    posterior = NN(units=20).fit(task, None, SEED, None)
    assert posterior.learned_from == 22
    np.testing.assert_array_equal(posterior.W, NN(units=20).fit(task.first(22), None, SEED, None).W)
    assert len(posterior.Phi) == 23


def test_another_seed_is_another_network():
    one, two = (DNGO(units=10).fit(branin_task(6), None, seed, None) for seed in (SEED, SEED / "other"))
    assert not np.array_equal(one.W, two.W)


def test_without_a_past_the_shared_network_is_one_of_its_own():
    task, X = branin_task(9), points(2, 20, 1)
    alone, shared = (model.fit(task, None, SEED, None) for model in (NN(units=20), ABLR(units=20)))
    np.testing.assert_array_equal(alone.mixture(X)[1], shared.mixture(X)[1])


def test_a_relative_in_memory_makes_ten_trials_go_further():
    shared = alone = 0.0
    for seed in range(3):
        memory = remember(ABLR(), branin_task(40, seed=seed))
        task = branin_task(10, RELATIVE, seed=seed + 10)
        alone += error(ABLR().fit(task, None, SEED, None), RELATIVE)
        shared += error(ABLR().fit(task, memory, SEED, None), RELATIVE)
    assert shared < 0.7 * alone


@pytest.mark.parametrize("name", ["X", "z", "W"])
def test_past_trials_and_the_network_so_far_both_shape_the_next(name):
    model, task = ABLR(units=10), branin_task(8, RELATIVE, seed=1)
    memory = remember(model, branin_task(10))
    other = replace(memory, arrays={**memory.arrays, name: memory.arrays[name] * 0.9})
    one, two = (model.fit(task, m, SEED, None) for m in (memory, other))
    assert not np.allclose(one.W, two.W)


def test_the_remembered_network_is_the_same_function_in_another_frame():
    model = ABLR(units=20)
    memory = remember(model, branin_task(10))
    wider = space_of(x01=FloatDistribution(0, 2), x02=FloatDistribution(0, 1), x03=FloatDistribution(0, 1))
    X = points(3, 15)
    W = _remembered_network(memory, Task(X, np.zeros(15), wider), dngo.layers(3, 20))
    X_old = X[:, :2] * [2, 1]
    ours, theirs = dngo.last_layer(W, X, dngo.layers(3, 20)), dngo.last_layer(
        memory.arrays["W"], X_old, dngo.layers(2, 20))  # fmt: skip
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_memory_keeps_every_trial_of_every_task():
    memory = None
    for seed in range(3):
        memory = remember(ABLR(units=5), branin_task(6, seed=seed), memory)
    assert memory.arrays["X"].shape == (18, 2)
    np.testing.assert_array_equal(memory.arrays["task"], np.repeat([0, 1, 2], 6))
    assert memory.space == cube(2)
