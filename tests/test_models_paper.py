"""The paper's model: its gradient against autodiff, its regulariser against the history, its cost, its behaviour."""

from collections.abc import Iterator
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optuna
import pytest
from scipy.special import expit

import lbo
from lbo import blas
from lbo.experiments.branin import Branin
from lbo.maths import head, networks
from lbo.memory import Memory
from lbo.models import paper
from lbo.models.base import Task
from lbo.seeds import Seed
from lbo.space import Axis, Space

TINY = paper.Paper(networks=4, units=6, steps=4)
SIZES = (2, 6, 6, 6)


@pytest.fixture(autouse=True)
def float64_autodiff_and_one_blas_thread() -> Iterator[None]:
    with jax.enable_x64(True), blas.one_thread():
        yield


def space() -> Space:
    line = optuna.distributions.FloatDistribution(0, 1)
    return Space((Axis("a", line, line), Axis("b", line, line)))


def task(n: int, seed: int = 0, shift: float = 0.0) -> Task:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return Task(X, np.sin(5 * X[:, 0] + shift) + X[:, 1] ** 2 + 0.01 * rng.standard_normal(n), space())


def some_past(rng: np.random.Generator, M: int) -> paper.Past:
    """Every other network was used before."""
    n = np.where(np.arange(M) % 2 == 0, 0.0, 1.0 + np.arange(M))
    return paper.Past(SIZES, n, (n > 0)[:, None] * networks.init(rng, SIZES, M), np.where(n > 0, rng.random(M), 0.0))


def some_state(rng: np.random.Generator, M: int) -> paper.State:
    anchor = networks.init(rng, SIZES, M)
    W = anchor + 0.1 * rng.standard_normal(anchor.shape)
    return paper.State(W, anchor, rng.normal(0, 1, M), 1.3, 3.1)


# The objective in JAX, written from the equations and sharing nothing with our code


def jax_features(W, X):
    H = 2 * X - 1
    start = 0
    for fan_in, fan_out in pairwise(SIZES):
        weight = W[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        bias = W[start + fan_in * fan_out : start + (fan_in + 1) * fan_out]
        H = jnp.tanh(H @ weight + bias)
        start += (fan_in + 1) * fan_out
    return H


def jax_log_density(l, log_gamma, tau):
    a = log_gamma - tau * l
    return jnp.log(tau) + a - 2 * jnp.logaddexp(0.0, a)


def jax_elbo(W, G, log_lam, log_beta, *, anchor, X, z, past, rho, u, pi, active, tau=0.1):
    l = (G + jnp.log(u) - jnp.log1p(-u)) / tau
    g = jax.nn.sigmoid(l)
    phi = jax.vmap(jax_features, in_axes=(0, None))(W[active], X)
    Phi = (g[active, None, None] * phi).transpose(1, 0, 2).reshape(len(z), -1)
    C = Phi @ Phi.T / jnp.exp(log_lam) + jnp.eye(len(z)) / jnp.exp(log_beta)
    value = -0.5 * (z @ jnp.linalg.solve(C, z) + jnp.linalg.slogdet(2 * jnp.pi * C)[1])
    prior = jnp.log(pi) - jnp.log1p(-pi)
    value -= jnp.sum(jax_log_density(l, G, tau) - jax_log_density(l, prior, tau))
    away = jnp.sum((W - past.Wbar) ** 2, axis=1)
    moved = jnp.sum((W - anchor) ** 2, axis=1)
    value -= rho * jnp.sum((g * (past.n * away + past.S))[active])
    return value - 0.5 * paper.DECAY * SIZES[1] * jnp.sum(jnp.where(past.n == 0, moved, 0.0)[active])


@pytest.mark.parametrize("n_trials", [6, 40], ids=["dual", "primal"])
@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_the_gradient_is_autodiffs(n_trials: int, rho: float) -> None:
    rng = np.random.default_rng(5)
    M = 5
    past, state = some_past(rng, M), some_state(rng, M)
    X, z = rng.random((n_trials, 2)), rng.standard_normal(n_trials)
    u = np.array([0.6, 0.45, 1e-4, 0.4, 0.99])  # the third gate is shut
    state = state._replace(G=np.array([0.1, 0.4, 0.0, 0.3, 0.2]))
    pi = np.array([0.7, 0.5, 0.3, 0.2, 0.1])

    active, dW, drest = paper.elbo_grad(state, X, z, past, rho, u, pi)
    assert active.tolist() == [0, 1, 3, 4]
    known = {"anchor": state.anchor, "X": X, "z": z, "past": past, "rho": rho, "u": u, "pi": pi, "active": active}
    args = (state.W, state.G, state.log_lam, state.log_beta)
    differentiate = jax.jit(jax.value_and_grad(lambda *a: jax_elbo(*a, **known), argnums=(0, 1, 2, 3)))
    value, (jW, jG, jlam, jbeta) = differentiate(*map(jnp.asarray, args))

    assert paper.elbo(state, X, z, past, rho, u, pi) == pytest.approx(float(value), rel=1e-9)
    np.testing.assert_allclose(dW, jW[active], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(drest, [*jG, jlam, jbeta], rtol=1e-6, atol=1e-8)
    assert np.abs(jW[2]).max() == 0


def test_training_climbs_the_objective() -> None:
    data = task(12)
    past = paper._recall(TINY, data, None)
    z, _ = paper.standardise(data.y)

    def mean_elbo(state: paper.State) -> float:
        rng = np.random.default_rng(1)
        draws = [(rng.random(4), paper.buffet.sticks(rng, TINY.alpha, 4)) for _ in range(50)]
        return float(np.mean([paper.elbo(state, data.X, z, past, 0.0, u, pi) for u, pi in draws]))

    states = [paper._begin(TINY, data, past, 0.0, Seed(0), steps) for steps in (0, 100, 400)]
    heights = [mean_elbo(state) for state in states]
    assert heights[0] < heights[1] < heights[2]


# Memory


def test_the_constant_size_regulariser_is_the_sum_over_history() -> None:
    history: list[tuple[np.ndarray, np.ndarray]] = []  # W and hard gates of every task
    memory = None
    for t in range(5):
        data, seed = task(9, seed=t, shift=0.5 * t), Seed(t)
        state = TINY.fit(data, memory, seed / "fit", None).state
        history.append((state.W, expit(state.G) > 0.5))
        lesson = TINY.consolidate(data, memory, seed)
        memory = Memory(model={}, space=data.space, arrays=lesson.arrays)
    used = np.array([gates for _, gates in history])
    assert (used.sum(axis=0) > 1).any()
    assert not used.all()

    rng = np.random.default_rng(0)
    W, g = networks.init(rng, SIZES, 4), rng.random(4)
    literal = sum(
        g[m] * gates[m] * ((W[m] - W_u[m]) ** 2).sum() for W_u, gates in history for m in range(TINY.networks)
    )
    arrays = memory.arrays
    constant = paper.omega(g, arrays["n"], W - arrays["Wbar"], arrays["S"])
    assert constant == pytest.approx(literal, rel=1e-9)
    assert {name: a.shape for name, a in arrays.items()} == {"n": (4,), "Wbar": W.shape, "S": (4,)}


def test_a_task_starts_from_the_weights_of_the_networks_used_before() -> None:
    data = task(8)
    memory = Memory(model={}, space=data.space, arrays=TINY.consolidate(data, None, Seed(0)).arrays)
    past = paper._recall(TINY, data, memory)
    state = paper._begin(TINY, data, past, 0.1, Seed(1), 0)
    used = past.n > 0
    np.testing.assert_array_equal(state.W[used], memory.arrays["Wbar"][used])
    assert (state.W[~used] != 0).any()


def test_rho_comes_from_the_papers_grid() -> None:
    data = task(8)
    memory = Memory(model={}, space=data.space, arrays=TINY.consolidate(data, None, Seed(0)).arrays)
    assert TINY.fit(task(9, seed=1), memory, Seed(2), None).rho in paper.RHOS


# Cost


def test_a_step_costs_what_its_active_networks_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    def shapes(M: int) -> set[tuple[str, tuple[int, ...]]]:
        seen: set[tuple[str, tuple[int, ...]]] = set()

        def spy(module, name):
            original = getattr(module, name)

            def wrapped(first, *args, **kwargs):
                seen.add((name, first.shape))
                return original(first, *args, **kwargs)

            monkeypatch.setattr(module, name, wrapped)

        rng = np.random.default_rng(0)
        past, state = some_past(rng, M), some_state(rng, M)
        state = state._replace(G=np.where(np.arange(M) < 2, 8.0, -8.0))
        X, z = rng.random((20, 2)), rng.standard_normal(20)
        with monkeypatch.context():
            for name in ("features_tape", "features_vjp"):
                spy(networks, name)
            spy(head, "evidence_grad")
            for _ in range(20):
                u = rng.uniform(0.05, 0.95, M)
                active, dW, _ = paper.elbo_grad(state, X, z, past, 0.1, u, np.full(M, 0.5))
                assert active.tolist() == [0, 1]
                assert len(dW) == 2
        monkeypatch.undo()
        return seen

    few, many = shapes(4), shapes(25)
    assert few == many
    assert {shape[0] for name, shape in many if name == "features_tape"} == {2}


# Posterior


def test_the_mixture_over_hard_gates_is_a_distribution() -> None:
    posterior = TINY.fit(task(10), None, Seed(0), None)
    log_w, mean, var = posterior.mixture(np.random.default_rng(0).random((7, 2)))
    assert np.exp(log_w).sum() == pytest.approx(1.0)
    assert mean.shape == var.shape == (len(log_w), 7)
    assert (var > 0).all()
    assert all(len(pattern) for pattern in posterior.patterns)
    assert len({tuple(pattern) for pattern in posterior.patterns}) == len(posterior.patterns)


def test_gates_that_are_all_shut_still_predict() -> None:
    data = task(6)
    past = paper._recall(TINY, data, None)
    state = paper._begin(TINY, data, past, 0.0, Seed(0), 0)._replace(G=np.full(4, -50.0))
    posterior = paper._posterior(TINY, data, past, state, 0.0, np.random.default_rng(0))
    assert [len(pattern) for pattern in posterior.patterns] == [1]
    assert np.isfinite(posterior.mean(data.X)).all()


@pytest.mark.parametrize("with_memory", [False, True])
def test_a_fit_that_goes_on_equals_one_from_scratch(with_memory: bool) -> None:
    data = task(16)
    memory = None
    if with_memory:
        memory = Memory(model={}, space=data.space, arrays=TINY.consolidate(task(9, seed=3), None, Seed(0)).arrays)
    X = np.random.default_rng(1).random((5, 2))
    previous = None
    for n in (5, 6, 8, 9, 13, 16):
        previous = TINY.fit(data.first(n), memory, Seed(4), previous)
        scratch = TINY.fit(data.first(n), memory, Seed(4), None)
        for ours, theirs in zip(previous.mixture(X), scratch.mixture(X), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_believing_the_mean_narrows_the_posterior_there_and_leaves_the_mean() -> None:
    posterior = TINY.fit(task(8), None, Seed(0), None)
    X = np.array([[0.9, 0.1]])
    believed = posterior.believe(X)
    assert (believed.mixture(X)[2] < posterior.mixture(X)[2]).all()
    assert believed.mean(X) == pytest.approx(posterior.mean(X), abs=0.2)
    assert believed.best == posterior.best


def test_the_posterior_predicts_held_out_values() -> None:
    data, new = task(40), task(60, seed=9)
    posterior = paper.Paper(networks=4, units=20).fit(data, None, Seed(0), None)
    error = posterior.to_user(posterior.mean(new.X)) - new.y
    assert np.sqrt((error**2).mean()) < 0.25 * new.y.std()


@pytest.mark.slow
def test_branin_is_optimised_in_fewer_trials_than_by_chance() -> None:
    def regret(sampler: optuna.samplers.BaseSampler) -> float:
        study = optuna.create_study(sampler=sampler)
        study.optimize(Branin().objective, n_trials=25)
        return study.best_value - Branin().minimum.value

    ours = [regret(lbo.LBOSampler(model=paper.Paper(), seed=seed)) for seed in range(2)]
    random = [regret(optuna.samplers.RandomSampler(seed=seed)) for seed in range(10)]
    assert np.mean(ours) < np.median(random)
