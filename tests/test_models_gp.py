"""Gaussian processes: the contract, predictions against the textbook formula, derivatives against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from lbo.experiments.branin import Branin
from lbo.memory import Memory, Record
from lbo.models import empirical, gp, mtgp, past_trials
from lbo.models.base import Task, standardise
from lbo.models.gp import SGP, WinnersSGP
from lbo.models.mtgp import MTGP
from model_contract import RELATIVE, SEED, branin_task, cube, error, every_check, of_models, points, remember, space_of

THETA = np.log([0.3, 0.7, 1.4, 0.02])  # ell, v, noise of two parameters
F = np.array([[0.9, 0.0, 0.0], [0.6, 0.7, 0.0], [-0.4, 0.3, 1.1]])


@pytest.fixture(autouse=True)
def float64_autodiff():
    with jax.enable_x64(True):
        yield


@every_check
@of_models(SGP(), WinnersSGP(), MTGP())
def test_contract(model, check):
    check(model)


# The textbook, written down once more in JAX


@jax.jit
def literal_matern(X1, X2, ell):
    d2 = jnp.sum(((X1[:, None] - X2[None]) / ell) ** 2, axis=-1)
    s = jnp.sqrt(5.0 * d2 + 1e-30)  # a distance of zero has no derivative
    return (1 + s + s**2 / 3) * jnp.exp(-s)


@jax.jit
def literal_evidence(K, z):
    return -0.5 * (z @ jnp.linalg.solve(K, z) + jnp.linalg.slogdet(K)[1] + len(z) * jnp.log(2 * jnp.pi))


def literal_joint_covariance(X1, task1, X2, task2, theta, F):
    same = task1[:, None] == task2[None]
    return (F @ F.T)[task1][:, task2] * jnp.exp(theta[2]) * literal_matern(X1, X2, jnp.exp(theta[:2])) + same


def joint_theta(F):
    entries = F + np.diag(np.log(np.diag(F)) - np.diag(F))
    return np.append(THETA, entries[np.tril_indices(len(F))])


def literal_joint_evidence(theta, X, z, task, T):
    F = jnp.zeros((T, T)).at[np.tril_indices(T)].set(theta[4:])
    F = F + jnp.diag(jnp.exp(jnp.diag(F)) - jnp.diag(F))
    K = literal_joint_covariance(X, task, X, task, theta, F)
    return literal_evidence(K + jnp.exp(theta[3]) * jnp.eye(len(z)), z)


def three_tasks(n=24):
    task = np.repeat(np.arange(3), n // 3)
    return points(2, n), np.random.default_rng(1).normal(size=n), task


# One task


def test_prediction_is_the_textbook_formula():
    task, X = branin_task(12), points(2, 9, 1)
    z, scale = standardise(task.y)
    posterior = gp._single_posterior(THETA, 12, task)
    ell, v, noise = np.exp(THETA[:2]), np.exp(THETA[2]), np.exp(THETA[3])
    K = v * literal_matern(task.X, task.X, ell) + 1 + noise * np.eye(12)
    Ks = v * literal_matern(X, task.X, ell) + 1
    _, mean, var = posterior.mixture(X)
    np.testing.assert_allclose(mean[0], Ks @ np.linalg.inv(K) @ z, rtol=1e-9)
    np.testing.assert_allclose(var[0], np.diag(v + 1 - Ks @ np.linalg.inv(K) @ Ks.T), rtol=1e-8)
    np.testing.assert_allclose(posterior.to_user(z), task.y)
    assert posterior.scale == scale


def test_the_value_to_beat_is_the_smallest_mean_at_a_trial():
    task = branin_task(12)
    posterior = gp._single_posterior(THETA, 12, task)
    np.testing.assert_allclose(posterior.best, posterior.mixture(task.X)[1].min(), rtol=1e-9)


def test_believing_is_conditioning_on_the_mean():
    task, pending, X = branin_task(10), points(2, 3, 1), points(2, 20, 2)
    posterior = gp._single_posterior(THETA, 10, task)
    z = np.append(standardise(task.y)[0], posterior.mixture(pending)[1][0])
    seen = np.vstack([task.X, pending])
    ell, v, noise = np.exp(THETA[:2]), np.exp(THETA[2]), np.exp(THETA[3])
    K = v * literal_matern(seen, seen, ell) + 1 + noise * np.eye(13)
    Ks = v * literal_matern(X, seen, ell) + 1
    _, mean, var = posterior.believe(pending[:1]).believe(pending[1:]).mixture(X)
    np.testing.assert_allclose(mean[0], Ks @ np.linalg.inv(K) @ z, rtol=1e-8)
    np.testing.assert_allclose(var[0], np.diag(v + 1 - Ks @ np.linalg.inv(K) @ Ks.T), rtol=1e-8)


def test_evidence_gradient_is_autodiff():
    X, z, _ = three_tasks()
    X, column = np.column_stack([X, X[:, 0] ** 2]), np.array([0, 1, 1])  # the last two share a length scale
    G = points(4, len(z), 3)
    extra = 1 + G @ G.T

    def literal(theta, extra):
        K = jnp.exp(theta[2]) * literal_matern(X, X, jnp.exp(theta[:2])[column]) + extra
        return literal_evidence(K + jnp.exp(theta[3]) * jnp.eye(len(z)), z)

    value, dtheta, dK = gp.log_evidence_grad(THETA, X, z, column, extra)
    expected = jax.jit(jax.grad(literal, argnums=(0, 1)))(THETA, extra)
    np.testing.assert_allclose(value, literal(THETA, extra), rtol=1e-9)
    np.testing.assert_allclose(dtheta, expected[0], rtol=1e-7)
    np.testing.assert_allclose(dK, expected[1], rtol=1e-6, atol=1e-8)


def test_prior_gradient_is_autodiff():
    prior = empirical.join(empirical.length_scale_prior(2), empirical.variance_prior(), empirical.noise_prior())
    expected = jax.grad(lambda theta: -0.5 * jnp.sum(((theta - prior.mean) / prior.std) ** 2))(THETA)
    np.testing.assert_allclose(prior.log_density_grad(THETA)[1], expected, rtol=1e-9)


def test_learned_hyper_parameters_are_a_maximum():
    task = branin_task(20)
    z, _ = standardise(task.y)
    column = task.space.column_axis
    prior = empirical.join(empirical.length_scale_prior(2), empirical.variance_prior(), empirical.noise_prior())

    def height(theta):
        return gp.log_evidence_grad(theta, task.X, z, column)[0] + prior.log_density_grad(theta)[0]

    theta = gp.learn_theta(task.X, z, column, 2)
    steps = np.random.default_rng(0).normal(0, 0.3, (50, 4))
    assert all(height(np.clip(theta + step, prior.low, prior.high)) < height(theta) + 1e-3 for step in steps)


def test_noise_is_learned():
    X = points(2, 60)
    for noise in (0.0, 0.5):
        y = np.sin(4 * X[:, 0]) + noise * np.random.default_rng(1).normal(size=60)
        learned = np.sqrt(SGP().fit(Task(X, y, cube(2)), None, SEED, None).noise) * y.std()
        assert 0.5 * noise <= learned <= 1.5 * noise + 0.01


def test_an_irrelevant_parameter_gets_the_longer_length_scale():
    X = points(2, 40)
    ell = np.exp(SGP().fit(Task(X, np.sin(6 * X[:, 0]), cube(2)), None, SEED, None).theta[:2])
    assert ell[1] > 4 * ell[0]


def test_columns_of_one_choice_share_a_length_scale():
    space = space_of(x=FloatDistribution(0, 1), kind=CategoricalDistribution(["a", "b", "c"]))
    X = space.encode(space.sample(np.random.default_rng(0), 20))
    posterior = SGP().fit(Task(X, X[:, 1] + X[:, -1], space), None, SEED, None)
    assert len(posterior.theta) == 4
    assert len(set(posterior.ell[:3])) == 1
    assert posterior.ell[3] != posterior.ell[0]


def test_hyper_parameters_come_from_the_trials_up_to_the_checkpoint():
    task = branin_task(23)
    posterior = SGP().fit(task, None, SEED, None)
    assert posterior.learned_from == 22
    np.testing.assert_array_equal(posterior.theta, SGP().fit(task.first(22), None, SEED, None).theta)
    assert len(posterior.X) == 23


def test_of_many_trials_the_best_the_latest_and_the_remotest_are_kept():
    X, z = points(3, 2000), np.random.default_rng(1).normal(size=2000)
    X[1000] = 3.0
    kept = past_trials.informative(X, z, 300)
    assert len(set(kept)) == len(kept) == 300
    assert set(np.argsort(z)[:100]) | set(range(1900, 2000)) | {1000} <= set(kept)
    np.testing.assert_array_equal(past_trials.informative(X[:300], z[:300], 300), np.arange(300))
    # Duplicates are no reason to keep fewer.
    assert (
        len(set(past_trials.informative(np.zeros((2000, 3)), z, 300))) == 300
    )  # duplicates are no reason to keep fewer


def test_many_trials_still_predict_well():
    assert error(SGP().fit(branin_task(1500), None, SEED, None), Branin()) < 0.01


# Past winners


def memory_of_winners(*winners):
    space = space_of(x=FloatDistribution(0, 1), kind=CategoricalDistribution(["a", "b", "gone"]))
    records = tuple(Record(f"t{i}", 9, "", (), {}, ((w, 0.0),) if w else ()) for i, w in enumerate(winners))
    return Memory({"name": "WinnersSGP"}, space, records)


def test_past_winners_open_latest_first_and_none_twice():
    a, b = {"x": 0.1, "kind": "a"}, {"x": 0.2, "kind": "b"}
    memory = memory_of_winners(b, a, None, b, a, {"x": 0.3, "kind": "gone"})
    space = space_of(x=FloatDistribution(0, 1), kind=CategoricalDistribution(["a", "b"]))
    opened = []
    for _ in range(4):
        X = space.encode(space.to_unit(opened))
        opened.append(WinnersSGP().opening(Task(X, np.zeros(len(X)), space), memory))
        if opened[-1] is None:
            break
    assert opened == [a, b, None]


def test_at_most_five_past_winners_open():
    memory = memory_of_winners(*({"x": i / 10, "kind": "a"} for i in range(9)))
    space, opened = memory.space, []
    while (winner := WinnersSGP().opening(_task_of(space, opened), memory)) is not None:
        opened.append(winner)
    assert [w["x"] for w in opened] == [0.8, 0.7, 0.6, 0.5, 0.4]


def test_winners_that_never_look_tried_do_not_open_for_ever():
    memory = memory_of_winners(*({"x": i / 10, "kind": "a"} for i in range(9)))
    elsewhere = _task_of(memory.space, [{"x": 0.99, "kind": "b"}] * 5)
    assert WinnersSGP().opening(elsewhere, memory) is None


def _task_of(space, configurations):
    return Task(space.encode(space.to_unit(configurations)), np.zeros(len(configurations)), space)


# All tasks


def test_joint_evidence_gradient_is_autodiff():
    X, z, task = three_tasks()
    theta = joint_theta(F)
    value, dtheta = mtgp.joint_log_evidence_grad(theta, X, z, task, np.arange(2), 2)
    expected, dexpected = jax.jit(jax.value_and_grad(lambda th: literal_joint_evidence(th, X, z, task, 3)))(theta)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(dtheta, dexpected, rtol=1e-6, atol=1e-8)


def test_joint_prediction_is_the_textbook_formula():
    X, z, task = three_tasks()
    scale = standardise(z)[1]
    posterior = mtgp._joint_posterior(joint_theta(F), 8, past_trials.PastTrials(X, z, task), scale, cube(2))
    X_new, newest = points(2, 9, 1), np.full(9, 2)
    K = literal_joint_covariance(X, task, X, task, THETA, F) + np.exp(THETA[3]) * np.eye(len(z))
    Ks = literal_joint_covariance(X_new, newest, X, task, THETA, F)
    _, mean, var = posterior.mixture(X_new)
    np.testing.assert_allclose(mean[0], Ks @ np.linalg.inv(K) @ z, rtol=1e-8)
    prior = np.exp(THETA[2]) * (F @ F.T)[2, 2] + 1
    np.testing.assert_allclose(var[0], np.diag(prior - Ks @ np.linalg.inv(K) @ Ks.T), rtol=1e-8)
    own = posterior.mixture(X[task == 2])[1]
    np.testing.assert_allclose(posterior.best, own.min(), rtol=1e-8)


def test_one_task_alone_is_a_single_task_process():
    task, X = branin_task(12), points(2, 9, 1)
    z, scale = standardise(task.y)
    alone = gp._single_posterior(THETA, 12, task)
    theta = joint_theta(np.eye(1))
    first = past_trials.PastTrials(task.X, z, np.zeros(12, dtype=int))
    joint = mtgp._joint_posterior(theta, 12, first, scale, task.space)
    for ours, theirs in zip(joint.mixture(X), alone.mixture(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    value, dtheta = mtgp.joint_log_evidence_grad(theta, task.X, z, first.task, np.arange(2), 2)
    expected, dexpected, _ = gp.log_evidence_grad(THETA, task.X, z, np.arange(2))
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(dtheta, [*dexpected, 2 * dexpected[2]], rtol=1e-8)  # v F^2 is the variance


def test_a_relative_in_memory_makes_six_trials_go_further():
    for seed in range(3):
        memory = remember(MTGP(), branin_task(40, seed=seed))
        task = branin_task(6, RELATIVE, seed=seed + 10)
        alone, joint = SGP().fit(task, None, SEED, None), MTGP().fit(task, memory, SEED, None)
        assert error(joint, RELATIVE) < 0.5 * error(alone, RELATIVE)


def test_memory_keeps_every_trial_in_the_newest_frame():
    memory = remember(MTGP(), branin_task(7))
    wider = space_of(x01=FloatDistribution(0, 2), x03=FloatDistribution(0, 1))
    memory = remember(MTGP(), Task(points(2, 5, 1), np.arange(5.0), wider), memory)
    assert memory.arrays["X"].shape == (12, 2)
    np.testing.assert_array_equal(memory.arrays["task"], np.repeat([0, 1], [7, 5]))
    np.testing.assert_allclose(memory.arrays["X"][:7, 0], branin_task(7).X[:, 0] / 2, rtol=1e-6)
    np.testing.assert_allclose(memory.arrays["X"][:7, 1], 0.5)  # x03 was not there: imputed
    first = memory.arrays["z"][:7]
    np.testing.assert_allclose([first.mean(), first.std()], [0, 1], atol=1e-6)
