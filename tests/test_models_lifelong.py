"""The default model: the contract, its formulas against brute force, and what it must do on streams of tasks."""

from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.storages import InMemoryStorage
from scipy.special import logsumexp
from scipy.stats import multivariate_normal as norm

import lbo
from lbo.acquisition import log_acquisition
from lbo.experiments import ablation, synthetic
from lbo.experiments.branin import Branin, sequence
from lbo.maths import gaussian, matern
from lbo.memory import Memory, Record
from lbo.models import component, families, latent, lifelong, output
from lbo.models.base import Task, settings
from lbo.models.component import BETA, KAPPA, Component, Hypothesis
from lbo.models.lifelong import Lifelong, Problem, log_weight
from lbo.sampler import STRANGE, YOUNG
from lbo.space import Condition, Space
from model_contract import (
    RELATIVE,
    SEED,
    branin_task,
    cube,
    every_check,
    mean_var,
    moments,
    of_models,
    points,
    remember,
    space_of,
)

MODEL = Lifelong()
SQUARE = cube(2)


@every_check
@of_models(MODEL, Lifelong(functions=2, points=10))
def test_contract(model, check):
    check(model)


def test_it_refuses_to_remember_nothing():
    with pytest.raises(ValueError, match="at least one family's"):
        Lifelong(functions=1)


@cache
def memory_of_two() -> Memory:
    return remember(MODEL, branin_task(20, RELATIVE, seed=1), remember(MODEL, branin_task(20)))


# Hyper-parameters: the objective and its gradient, written down once more in JAX


def literal_matern(X1, X2, ell):
    d2 = jnp.sum(((X1[:, None] - X2[None]) / ell) ** 2, axis=-1)
    s = jnp.sqrt(5.0 * d2 + 1e-30)  # a distance of zero has no derivative
    return (1 + s + s**2 / 3) * jnp.exp(-s)


def literal_objective(theta, X, z, axis, prior, offsets, sign=1.0, mu=None, C=None):
    """Minus the log density of z / s - rho mu, a Gaussian, and of theta, but for the priors' constants."""
    P = len(theta) - 3
    rho2 = 0.0 if mu is None else jax.nn.sigmoid(theta[P])
    noise, s = jnp.exp(theta[P + 1]), jnp.exp(theta[P + 2])
    A = (1 - rho2) * literal_matern(X, X, jnp.exp(theta[:P])[axis]) + offsets + noise * jnp.eye(len(z))
    mean = jnp.zeros(len(z)) if mu is None else sign * jnp.sqrt(rho2) * mu
    A = A if C is None else A + rho2 * C
    density = jax.scipy.stats.multivariate_normal.logpdf(z, s * mean, s**2 * A)
    return -density + 0.5 * jnp.sum(((theta - prior.mean) / prior.std) ** 2)


X_OF_A = (("x", Condition("kind", ("a",))),)


def mixed_task(n, seed=0, conditions=()):
    flat = space_of(kind=CategoricalDistribution(["a", "b", "c"]), x=FloatDistribution(0, 1), y=FloatDistribution(0, 1))
    space = Space(flat.axes, conditions)
    X = space.encode(space.sample(np.random.default_rng(seed), n))
    return Task(X, np.sin(5 * X[:, 3]) + X[:, 4] - X[:, 1], space)


def literal_offsets(X, conditions):
    """The task's offset, and one for each kind where something depends on the kind."""
    kind = X[:, :3].argmax(axis=1)
    return KAPPA + BETA * (kind[:, None] == kind) * bool(conditions)


@pytest.mark.parametrize("conditions", [(), X_OF_A], ids=["flat", "conditional"])
@pytest.mark.parametrize(("m", "sign"), [(None, 1.0), (0, 1.0), (0, -1.0)], ids=["alone", "sharing", "upside down"])
def test_objective_of_the_hyper_parameters_and_its_gradient_are_the_literal_ones(m, sign, conditions):
    task, memory = mixed_task(14, 1, conditions), remember(MODEL, mixed_task(20, 0, conditions))
    past = families.recall(task.space, memory)
    problem = Problem(task, past, m, output.warped(task.y, 1.0))
    problem = problem if sign > 0 else problem.upside_down()
    g = ()
    if m is not None:
        C = latent.cov(past.functions[m], task.X, task.X)
        # JAX averages the triangles of what it factorises, which differ by rounding; ours reads the lower one.
        g = sign, latent.mean(past.functions[m], task.X), np.tril(C) + np.tril(C, -1).T
    offsets = literal_offsets(task.X, conditions)
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        literal = jax.jit(jax.value_and_grad(literal_objective))
        for _ in range(5):
            theta = problem.prior.mean + problem.prior.std * rng.normal(size=len(problem.prior.mean))
            value, gradient = literal(theta, task.X, problem.z, problem.axis, problem.prior, offsets, *g)
            ours = problem(theta)
            np.testing.assert_allclose(ours[0], value, rtol=1e-9, atol=1e-9)  # of terms that nearly cancel
            np.testing.assert_allclose(ours[1], gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("m", [None, 0])
def test_learning_starts_at_the_best_of_a_few_scales(m):
    past, task = families.recall(SQUARE, memory_of_two()), branin_task(12)
    problem = Problem(task, past, m, output.plain(task.y, 1.0))
    for way in (problem, problem.upside_down()):
        tried = [problem.prior.mean + np.append(np.zeros(4), shift) for shift in lifelong.SHIFTS]
        values = [way(theta)[0] - way.log_weight for theta in tried]
        value, start = way.start()
        assert value == pytest.approx(min(values), rel=1e-12)
        np.testing.assert_array_equal(start, tried[int(np.argmin(values))])


def test_learning_never_ends_worse_than_it_starts():
    task = branin_task(12)
    past = families.recall(SQUARE, memory_of_two())
    for m in (None, 0, 1):
        problem = Problem(task, past, m, output.plain(task.y, 1.0))
        value, start = problem.start()
        assert problem.solve(start).score >= -value


def test_hypotheses_have_chances_that_sum_to_one_before_the_first_trial():
    for counts, tasks in (([], 0), ([0.0, 0.0], 1), ([3.0, 1.0, 0.0, 7.0], 15)):
        past = families.Past(counts=np.array(counts), tasks=tasks)
        chances = np.exp([log_weight(past, m) for m in (None, *range(len(counts)))])
        assert chances.sum() == pytest.approx(1.0)
        assert (chances > 0).all()
    assert log_weight(past, 3) > log_weight(past, None) > log_weight(past, 1) > log_weight(past, 2)


# Priors of length scales, learned parameter by parameter


def ridges(n, seed=0, axis=0, space=SQUARE):
    """Trials of a function that is wild along one axis and hardly moves along the others."""
    X = space.encode(space.sample(np.random.default_rng(seed), n))
    return Task(X, np.sin(20 * X[:, axis] + seed) + 0.1 * X.sum(axis=1), space)


def prior_log_ell(space, memory):
    task = Task(np.empty((0, len(space.columns))), np.empty(0), space)
    return lifelong._prior(task, families.recall(space, memory)).mean[: len(space.axes)]


DEFAULT = np.log(0.35 * np.sqrt(2))  # log length scale in two dimensions


def test_length_scales_that_past_tasks_had_alone_are_what_the_next_one_expects():
    memory, learned = None, []
    for t in range(3):
        task = ridges(26, t)  # with so many trials a search learns anew, and so does what is remembered of it
        learned.append(MODEL.fit(task, memory, SEED, None).alone.theta[:2])
        memory = fold(task, memory)
    expected = (2 * DEFAULT + np.sum(learned, axis=0)) / 5  # what is expected of a first task is worth two
    np.testing.assert_allclose(prior_log_ell(SQUARE, memory), expected, atol=1e-5)
    np.testing.assert_allclose(prior_log_ell(SQUARE, None), DEFAULT, rtol=1e-9)
    assert expected[0] < DEFAULT - 0.2 < expected[1]


def test_length_scales_follow_a_range_that_widened_and_a_parameter_that_came():
    memory = fold(ridges(25))
    before = prior_log_ell(SQUARE, memory)
    after = prior_log_ell(space_of(x00=FloatDistribution(0, 1), x01=FloatDistribution(-1, 3)), memory)
    np.testing.assert_allclose(after[0], DEFAULT, rtol=1e-9)  # new
    # x01 lost its place to none: a length of four times the range is a quarter of it.
    np.testing.assert_allclose(after[1], before[0] + np.log(1 / 4) / 3, rtol=1e-9)


def test_a_parameter_that_a_task_did_not_vary_teaches_nothing_of_its_scale():
    task = ridges(25)
    frozen = Task(np.column_stack([task.X[:, 0], np.full(25, 0.5)]), task.y, SQUARE)
    memory = fold(task, fold(frozen))
    np.testing.assert_array_equal(memory.arrays["scaled"], [2, 1])
    assert prior_log_ell(SQUARE, fold(frozen))[1] == pytest.approx(DEFAULT)


def test_all_columns_of_a_choice_have_one_scale_and_so_has_a_choice_that_is_new():
    before, after = (space_of(k=CategoricalDistribution(list(k)), x=FloatDistribution(0, 1)) for k in ("abc", "abcd"))
    memory = remember(MODEL, ridges(25, axis=-1, space=before))
    np.testing.assert_allclose(prior_log_ell(after, memory), prior_log_ell(before, memory), rtol=1e-9)


def test_a_memory_of_before_length_scales_were_remembered_expects_the_usual():
    memory = fold(ridges(25))
    arrays = {name: array for name, array in memory.arrays.items() if name not in ("log_ell", "scaled")}
    old = Memory.from_bytes(replace(memory, arrays=arrays).to_bytes())
    np.testing.assert_allclose(prior_log_ell(SQUARE, old), DEFAULT, rtol=1e-9)
    moments(MODEL.fit(ridges(5, 1), old, SEED, None), points(2, 20))


# One hypothesis is one Gaussian


def some_function(seed=0):
    X = points(2, 15, seed)
    return families.recall(SQUARE, remember(MODEL, Task(X, np.sin(4 * X).sum(axis=1), SQUARE))).functions[1]


def member(g, X, z, rho=0.8):
    nothing = gaussian.Posterior(np.empty(0), np.empty(0))
    return component.given(Component(g, 1, np.array([0.4, 0.9]), rho, 1e-2, 1.3, np.zeros(2), X, nothing), X, z)


def conditioned(mean, cov, H, y, noise):
    """Mean and covariance of a Gaussian vector once H of it has been observed with noise of that covariance."""
    gain = cov @ H.T @ np.linalg.inv(H @ cov @ H.T + noise)
    return mean + gain @ (y - H @ mean), cov - gain @ H @ cov


@pytest.mark.parametrize("rho", [0.0, 0.8, -0.8])
def test_prediction_is_conditioning_of_the_joint_prior(rho):
    X, X_new = points(2, 12, 1), points(2, 9, 2)
    g = some_function() if rho else None
    z = np.random.default_rng(0).normal(size=12)
    c = member(g, X, z, rho)
    both, n = np.vstack([X, X_new]), 21
    # The vector: c, then g and r at all points. f = s (c + rho g + sqrt(1 - rho^2) r).
    mean, cov = np.zeros(1 + 2 * n), np.zeros((1 + 2 * n, 1 + 2 * n))
    cov[0, 0] = KAPPA
    if g:
        mean[1 : 1 + n], cov[1 : 1 + n, 1 : 1 + n] = latent.mean(g, both), latent.cov(g, both, both)
    cov[1 + n :, 1 + n :] = literal_matern(both, both, c.ell)
    F = c.s * np.hstack([np.ones((n, 1)), rho * np.eye(n), np.sqrt(1 - rho**2) * np.eye(n)])
    after, cov_after = conditioned(mean, cov, F[:12], z, c.s**2 * c.noise * np.eye(12))
    ours = component.predict(c, X_new)
    np.testing.assert_allclose(ours[0], F[12:] @ after, atol=1e-5)  # JAX's Matern is in single precision here
    np.testing.assert_allclose(ours[1], np.diag(F[12:] @ cov_after @ F[12:].T), atol=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.8, -0.8])
def test_gain_is_what_one_more_trial_moves_the_estimate_by(rho):
    X, X_new = points(2, 12, 1), points(2, 6, 2)
    g = some_function() if rho else None
    z = np.random.default_rng(0).normal(size=12)
    c = member(g, X, z, rho)
    mean, var = component.gain_each([c], X_new)
    own = component.predict(c, X)[0]
    best = int(own.argmin())
    for i, x in enumerate(X_new):
        (m,), (v,) = component.predict(c, x[None])
        # Told that many values at x, how far does the difference to the best trial's mean move?
        told = m + np.sqrt(v + c.s**2 * c.noise) * np.array([-1.0, 0.0, 1.0])
        both = np.vstack([X[best], x])
        moved = [
            np.subtract(*component.predict(member(g, np.vstack([X, x]), np.append(z, value), rho), both)[0])
            for value in told
        ]
        assert mean[0, i] == pytest.approx(own[best] - m, abs=1e-9)
        assert moved[1] == pytest.approx(mean[0, i], abs=1e-9)
        assert var[0, i] == pytest.approx((moved[2] - moved[1]) ** 2, rel=1e-6)


def test_without_noise_the_gain_is_what_is_below_the_best_value():
    X, X_new = points(2, 12, 1), points(2, 6, 2)
    z = np.random.default_rng(0).normal(size=12)
    c = component.given(member(None, X, z)._replace(noise=1e-9), X, z)
    mean, var = component.predict_each([c], X_new)
    gain, moved = component.gain_each([c], X_new)
    np.testing.assert_allclose(gain, z.min() - mean, atol=1e-5)
    np.testing.assert_allclose(moved, var, rtol=1e-4)


def test_another_trial_where_the_best_one_was_gains_nothing():
    X = np.array([[0.3, 0.3], [0.7, 0.6]])
    c = member(None, X, np.array([-1.0, 1.0]))._replace(noise=0.5)
    c = component.given(c, X, np.array([-1.0, 1.0]))
    uncertain = component.predict(c, X)[1]
    mean, var = component.gain_each([c], X)
    assert uncertain[0] > 0.1
    assert (mean[0, 0], var[0, 0]) == pytest.approx((0.0, 0.0), abs=1e-12)
    assert var[0, 1] > 0.01


def test_prediction_knows_an_offset_for_every_kind_that_something_depends_on():
    task, new = (mixed_task(n, seed, X_OF_A) for n, seed in ((12, 1), (9, 2)))
    theta = np.concatenate([np.log([0.7, 0.4, 0.9]), [0.0, np.log(1e-2), np.log(1.3)]])
    c = component.condition(task, task.y, None, Hypothesis(None, theta, 0.0))
    both = np.vstack([task.X, new.X])
    prior = 1.3**2 * (np.asarray(literal_matern(both, both, c.ell)) + literal_offsets(both, X_OF_A))
    seen = np.eye(len(both))[:12]
    mean, cov = conditioned(np.zeros(len(both)), prior, seen, task.y, 1.3**2 * 1e-2 * np.eye(12))
    ours = component.predict(c, new.X)
    np.testing.assert_allclose(ours[0], mean[12:], atol=1e-5)
    np.testing.assert_allclose(ours[1], np.diag(cov)[12:], atol=1e-5)


def test_of_many_trials_the_best_half_and_an_even_choice_of_the_others_are_kept():
    y = np.random.default_rng(0).normal(size=1000)
    y[::10] = np.nan
    kept = component.most_telling(Task(points(2, 1000), y, SQUARE))
    assert len(kept) == component.LARGEST_FIT
    assert set(np.sort(y)[: component.LARGEST_FIT // 2]) <= set(kept.y)
    assert 10 < np.isnan(kept.y).sum() < 60  # a tenth of the rest, more or less
    position = [int(np.flatnonzero((points(2, 1000) == x).all(axis=1))[0]) for x in kept.X]
    assert position == sorted(position)


# Families


@pytest.mark.parametrize("rho", [0.8, -0.8])
def test_a_family_learns_of_tasks_one_by_one_what_it_would_learn_of_all_at_once(rho, monkeypatch):
    monkeypatch.setattr(latent, "JITTER", 1e-13)
    prior = latent.Latent(np.empty((0, 2)), np.empty(0), np.empty((0, 0)), np.array([0.5, 0.5]), 1.2)
    rng, X_new = np.random.default_rng(0), points(2, 8, 77)
    tasks = [(points(2, 9, t), rng.normal(size=9)) for t in range(3)]
    offset, spread = 0.3, 0.8
    g = latent.Latent(points(2, 1, 50), np.zeros(1), np.sqrt([[prior.v]]), prior.ell, prior.v)  # knows nothing yet
    for X, z in tasks:
        g = families._family_mean(member(latent.prepare(g), X, z, rho), z, offset, spread, points=96)

    # The vector: g where anybody looks. Each task is ratio (rho g + sqrt(1 - rho^2) r + noise) + an offset of its own.
    everywhere = np.vstack([*(X for X, _ in tasks), X_new])
    cov = matern.kernel(everywhere, everywhere, prior.ell, prior.v)
    c, ratio = member(latent.prepare(g), *tasks[0], rho), 1.3 / spread
    H = ratio * rho * np.eye(27, len(everywhere))
    noise = np.zeros((27, 27))
    for t, (X, _) in enumerate(tasks):
        own = (1 - rho**2) * matern.kernel(X, X, c.ell, 1.0) + c.noise * np.eye(9)
        noise[9 * t : 9 * t + 9, 9 * t : 9 * t + 9] = ratio**2 * own + families.OFFSET_VARIANCE
    y = np.concatenate([(z - offset) / spread for _, z in tasks])
    mean, cov = conditioned(np.zeros(len(everywhere)), cov, H, y, noise)
    ours = latent.prepare(g)
    np.testing.assert_allclose(latent.mean(ours, X_new), mean[27:], atol=1e-5)
    np.testing.assert_allclose(latent.cov(ours, X_new, X_new), cov[27:, 27:], atol=1e-5)


def test_a_first_task_is_remembered_as_what_its_posterior_says_in_units_of_its_own():
    task = branin_task(30)
    functions = families.recall(SQUARE, remember(MODEL, task)).functions
    posterior, X = MODEL.fit(task, None, SEED, None), points(2, 200, 5)
    mean = posterior.mean(X)
    for g in functions:
        assert np.corrcoef(latent.mean(g, X), mean)[0, 1] > 0.999
        assert abs(latent.mean(g, X).mean()) < 0.2
        assert latent.mean(g, X).std() == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("rho", [0.0, 0.8, -0.8])
def test_the_latest_function_is_a_tasks_posterior_moved_and_scaled(rho):
    X = points(2, 12, 1)
    c = member(some_function() if rho else None, X, z := np.sin(6 * X[:, 0]), rho)
    g = latent.prepare(families._own_function(c, z, offset=0.7, spread=2.5, points=96))
    mean, var = component.predict(c, X)
    np.testing.assert_allclose(latent.mean(g, X), (mean - 0.7) / 2.5, atol=1e-3)
    np.testing.assert_allclose(mean_var(g, X)[1], var / 2.5**2, atol=1e-3)


def test_past_tasks_units_do_not_matter():
    X, task = points(2, 20, 5), branin_task(8, seed=3)
    first, second = branin_task(20), branin_task(20, RELATIVE, seed=1)
    other = remember(MODEL, replace(first, y=1e6 * first.y - 3e7))
    memories = memory_of_two(), remember(MODEL, replace(second, y=1e-3 * second.y), other)
    one, two = (MODEL.fit(task, memory, SEED, None).mixture(X) for memory in memories)
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.01, atol=0.01)


def alternate(model, *tasks):
    memory = None
    for task in tasks:
        memory = remember(model, task, memory)
    return memory


def stranger_task(seed, n=15):
    X = points(2, n, seed)
    return Task(X, synthetic.draw(np.random.default_rng(seed))(X), SQUARE)


def test_strangers_of_long_ago_make_room_for_families_of_today():
    A = [branin_task(15, f, seed=t) for t, f in enumerate(sequence(0.05, np.random.default_rng(0), 3))]
    B = [replace(stranger_task(t), y=((stranger_task(t).X - 0.2 - 0.01 * t) ** 2).sum(axis=1)) for t in range(3)]
    memory = alternate(Lifelong(functions=4), *(stranger_task(s) for s in range(40, 46)), A[0], B[0], A[1], B[1], A[2])
    home = [int(np.argmax(gates[1:])) for gates in memory.sharing]
    assert home[6] == home[8] == home[10] != home[7] == home[9]


def test_a_family_of_many_outlives_strangers():
    A = [branin_task(15, f, seed=t) for t, f in enumerate(sequence(0.05, np.random.default_rng(0), 6))]
    memory = alternate(Lifelong(functions=4), *A[:5], *(stranger_task(s) for s in range(40, 48)), A[5])
    home = [int(np.argmax(gates[1:])) for gates in memory.sharing]
    assert home[-1] == home[0]


def test_memory_does_not_grow_once_its_places_are_taken():
    model, memory, sizes = Lifelong(functions=3, points=20), None, []
    for seed in range(8):
        memory = remember(model, stranger_task(seed, 12), memory)
        sizes.append({name: array.shape for name, array in memory.arrays.items()})
    assert sizes[-1] == sizes[-2] == sizes[-3]
    assert sizes[-1]["R"] == (3, 20, 20)


# Changed spaces


def unchanged_at(before, after, configurations, more=(), atol=1e-4):
    """Whether the functions of a task in one space say the same of configurations in another."""
    X = before.encode(before.sample(np.random.default_rng(0), 25))
    memory = remember(MODEL, Task(X, np.sin(4 * X).sum(axis=1), before))
    old, new = (families.recall(space, memory).functions for space in (before, after))
    X_old = before.encode(before.to_unit(configurations))
    X_new = after.encode(after.to_unit([{**params, **dict(more)} for params in configurations]))
    for f, g in zip(old, new, strict=True):
        for ours, theirs in zip(mean_var(g, X_new), mean_var(f, X_old), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=atol)


NUMBERS = [{"x": float(x), "y": float(y)} for x, y in points(2, 40, 8)]
XY = space_of(x=FloatDistribution(0, 1), y=FloatDistribution(0, 1))


def test_a_parameter_that_is_new_changes_nothing():
    wider = space_of(a=FloatDistribution(0, 1), x=FloatDistribution(0, 1), y=FloatDistribution(0, 1))
    unchanged_at(XY, wider, NUMBERS, more={"a": 0.9}, atol=1e-9)


def test_a_range_that_widened_changes_nothing():
    unchanged_at(XY, space_of(x=FloatDistribution(-2, 5), y=FloatDistribution(0, 1)), NUMBERS, atol=1e-9)


def test_a_choice_that_is_new_changes_nothing():
    before, after = (space_of(k=CategoricalDistribution(list(k)), x=FloatDistribution(0, 1)) for k in ("ab", "abc"))
    unchanged_at(before, after, [{"k": "ab"[i % 2], "x": p["x"]} for i, p in enumerate(NUMBERS)], atol=1e-9)


def test_of_a_parameter_that_was_dropped_the_middle_is_remembered():
    # Between the points that are left the function is interpolated, hence no equality.
    middle = [{"x": p["x"], "y": 0.5} for p in NUMBERS]
    unchanged_at(XY, space_of(x=FloatDistribution(0, 1)), middle, atol=0.01)


def test_of_a_choice_that_was_dropped_the_others_stay():
    before, after = (space_of(k=CategoricalDistribution(list(k)), x=FloatDistribution(0, 1)) for k in ("abc", "ab"))
    unchanged_at(before, after, [{"k": "ab"[i % 2], "x": p["x"]} for i, p in enumerate(NUMBERS)], atol=0.01)


# The mixture, and failures


def with_failures(n=12, failed=(0, 3)):
    task = branin_task(n)
    y = task.y.copy()
    y[list(failed)] = np.nan
    return replace(task, y=y)


def chance_of_success(posterior, X):
    log_w, _, _ = posterior.mixture(X)
    return np.exp(logsumexp(log_w, axis=0))


def test_weights_sum_to_one_where_nothing_ever_failed():
    posterior = MODEL.fit(branin_task(7, seed=2), memory_of_two(), SEED, None)
    log_w, mean, _ = posterior.mixture(points(2, 5))
    assert log_w.shape == (len(mean),)
    assert len(mean) > 1
    assert np.exp(log_w).sum() == pytest.approx(1.0)
    assert (np.diff(log_w) <= 0).all()
    np.testing.assert_allclose(posterior.mean(points(2, 5)), np.exp(log_w) @ mean)


def test_a_memory_is_worked_out_once_for_a_space(monkeypatch):
    memory, wider = memory_of_two(), space_of(x01=FloatDistribution(0, 1), x02=FloatDistribution(0, 2))
    asked = []
    recall = families._recall
    monkeypatch.setattr(families, "_recall", lambda *args: asked.append(args) or recall(*args))
    monkeypatch.setattr(families, "_recalled", None)
    first = families.recall(SQUARE, memory)
    assert families.recall(replace(SQUARE), memory) is first
    assert families.recall(wider, memory) is not first
    assert families.recall(wider, Memory.from_bytes(memory.to_bytes())) is not first
    assert len(asked) == 3


def test_hypotheses_of_no_weight_are_left_out():
    posterior = MODEL.fit(branin_task(40, seed=2), memory_of_two(), SEED, None)
    log_w, _, _ = posterior.mixture(points(2, 5))
    *weighed, doubt = posterior.components
    assert len(weighed) < len(posterior.finalists)
    assert (log_w[:-1] > lifelong.NEGLIGIBLE).all()
    np.testing.assert_allclose(doubt.ell, weighed[0].ell / 2)


def test_a_fifth_of_the_likeliest_doubts_that_the_function_is_as_smooth_as_its_trials_look():
    posterior = MODEL.fit(branin_task(6, seed=2), memory_of_two(), SEED, None)
    log_w, _, var = posterior.mixture(points(2, 50))
    leader, doubt = posterior.components[0], posterior.components[-1]
    np.testing.assert_allclose(np.exp(log_w).sum(), 1)
    np.testing.assert_allclose(doubt.ell, leader.ell / 2)
    assert doubt.m == leader.m
    assert (var[-1] > var[0]).mean() > 0.9
    e = posterior.z / leader.s - component.prior_mean(leader, leader.X)
    log_evidence = [norm(np.zeros(len(e)), np.linalg.inv(c.fit.W.T @ c.fit.W)).logpdf(e) for c in (leader, doubt)]
    odds = lifelong.DOUBT * np.exp(log_evidence[1] - log_evidence[0])
    assert lifelong.LEAST_DOUBT < odds < lifelong.DOUBT
    np.testing.assert_allclose(np.exp(log_w[-1] - log_w[0]), odds)
    young = MODEL.fit(branin_task(4, seed=2), memory_of_two(), SEED, None)
    assert len(young.components) <= len(young.finalists)


def test_trials_that_show_how_smooth_the_function_is_leave_little_doubt():
    X = points(2, 60)

    def odds(y):
        log_w = MODEL.fit(Task(X, y, SQUARE), None, SEED, None).log_w
        return np.exp(log_w[-1] - log_w[0])

    np.testing.assert_allclose(odds(X @ [1.0, 2.0]), lifelong.LEAST_DOUBT)
    assert odds(np.random.default_rng(0).standard_normal(60)) > 1.5 * lifelong.LEAST_DOUBT


def test_a_failure_halves_the_chance_of_success_where_it_was_and_only_there():
    task = with_failures(failed=(0,))
    posterior = MODEL.fit(task.first(1), None, SEED, None)
    far = task.X[:1] + 3.0
    np.testing.assert_allclose(chance_of_success(posterior, np.vstack([task.X[:1], far])), [0.5, 1.0], atol=1e-9)


def test_a_failure_of_a_past_task_counts_half_and_own_successes_make_up_for_it():
    X = np.vstack([points(2, 10), [[0.5, 0.5]]])
    memory = remember(MODEL, Task(X, np.append(X[:10, 0], np.nan), SQUARE))
    there, far = np.array([[0.5, 0.5]]), np.array([[0.95, 0.05]])
    untried = MODEL.fit(Task(far, np.array([1.0]), SQUARE), memory, SEED, None)
    tried = MODEL.fit(Task(np.vstack([far, there]), np.array([1.0, 2.0]), SQUARE), memory, SEED, None)
    assert chance_of_success(untried, there)[0] == pytest.approx(1 / 1.5, abs=0.02)
    assert chance_of_success(tried, there)[0] == pytest.approx(2 / 2.5, abs=0.02)


def test_failures_lower_expected_improvement_near_them_and_nowhere_else():
    posterior = MODEL.fit(with_failures(), None, SEED, None)
    carefree = replace(posterior, failed=np.empty((0, 2)), failed_weight=np.empty(0))
    X = points(2, 300, 4)
    lost = log_acquisition(carefree, X) - log_acquisition(posterior, X)
    distance = np.linalg.norm(X[:, None] - posterior.failed, axis=-1).min(axis=1)
    assert (lost[distance < 0.05] > 0.2).all()
    assert (lost[distance > 0.6] < 0.01).all()
    assert (lost >= -1e-9).all()


def test_a_trial_that_runs_is_taken_for_a_success():
    posterior = MODEL.fit(with_failures(), None, SEED, None)
    at = posterior.failed[:1]
    assert chance_of_success(posterior.believe(at), at) > chance_of_success(posterior, at)


def test_where_all_trials_failed_there_still_is_something_to_beat():
    posterior = MODEL.fit(Task(points(2, 4), np.full(4, np.nan), SQUARE), memory_of_two(), SEED, None)
    for c in posterior.components:  # of failures alone, each counts as 1
        assert c.s * c.incumbent.mean == pytest.approx(1.0, abs=0.3)
    assert np.isfinite(log_acquisition(posterior, points(2, 50, 3))).all()


def test_only_the_newest_failures_are_kept():
    X = points(2, 100)
    memory = remember(MODEL, Task(X, np.where(np.arange(100) < 90, np.nan, 1.0 + X[:, 0]), SQUARE))
    memory = remember(MODEL, with_failures(), memory)
    failed = memory.arrays["failed"]
    assert len(failed) == families.FAILURES_KEPT
    np.testing.assert_allclose(failed[:2], branin_task(12).X[[0, 3]], rtol=1e-6)


# Warping


def heavy_tailed(n, seed=0):
    """A smooth function of the parameters, and models that collapsed in a third of the square."""
    X = points(2, n, seed)
    lost = 0.01 * ((X - 0.3) ** 2).sum(axis=1)
    return Task(X, np.where(X.sum(axis=1) > 1.2, 0.5, lost), SQUARE)


def plain_gaussian(n, seed=0):
    X = points(2, n, seed)
    K = matern.kernel(X, X, np.array([0.4, 0.4]), 1.0) + 1e-6 * np.eye(n)
    return Task(X, np.linalg.cholesky(K) @ np.random.default_rng(seed).normal(size=n), SQUARE)


def is_warped(task, memory=None):
    return MODEL.fit(task, memory, SEED, None).output.warped


def test_warping_is_chosen_where_collapsed_models_stretch_the_scale_and_not_otherwise():
    assert [is_warped(heavy_tailed(25, seed)) for seed in range(4)] == [True] * 4
    assert [is_warped(plain_gaussian(25, seed)) for seed in range(4)] == [False] * 4


def test_before_five_trials_the_past_says_whether_to_warp():
    tailed, plain = remember(MODEL, heavy_tailed(25)), remember(MODEL, plain_gaussian(25))
    assert is_warped(branin_task(3), tailed)
    assert not is_warped(branin_task(3), plain)


def of_a_hundred(memory):
    return replace(memory, records=memory.records * 100)


def test_a_hundred_tasks_that_were_not_warped_do_not_forbid_it():
    assert is_warped(heavy_tailed(25, 1), of_a_hundred(remember(MODEL, plain_gaussian(25))))


# Behaviour: whole tasks, played on a grid so that a trial costs a few hundredths of a second

SIDE = np.linspace(0, 1, 41)
GRID = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, 2)


def play(f, memory=None, n=10, seed=0, fails=None):
    """A task of n trials, and its regret after each in deviations of f; afresh, the first five are random."""
    rng = np.random.default_rng(seed)
    values, chosen, posterior = f(GRID), [], None
    told = values if fails is None else np.where(fails(GRID), np.nan, values)
    for i in range(n):
        task = Task(GRID[chosen], told[chosen], SQUARE)
        opening = MODEL.opening(task, memory)
        k = None if opening is None else int(np.abs(GRID - SQUARE.to_unit([opening])).sum(axis=1).argmin())
        if k is None or k in chosen:
            free = np.setdiff1d(np.arange(len(GRID)), chosen)
            if memory is None and i < 5:
                k = int(rng.choice(free))
            else:
                posterior = MODEL.fit(task, memory, SEED, posterior)
                if memory is not None and i < YOUNG and posterior.stranger > STRANGE:  # as the sampler does
                    k = int(rng.choice(free))
                else:
                    k = int(free[log_acquisition(posterior, GRID[free]).argmax()])
        chosen.append(k)
    regret = (np.minimum.accumulate(values[chosen]) - values.min()) / values.std()
    return Task(GRID[chosen], told[chosen], SQUARE), regret


def fold(task, memory=None):
    """The memory after one more task, its best configuration in the record."""
    lesson = MODEL.consolidate(task, memory, SEED)
    best = int(np.nanargmin(task.y))
    winner = (SQUARE.from_unit(task.X[best]), float(task.y[best]))
    record = Record("past", len(task), "", tuple(lesson.gates), lesson.hyper, (winner,))
    records = (*memory.records, record) if memory else (record,)
    return Memory.from_bytes(Memory(settings(MODEL), SQUARE, records, lesson.arrays).to_bytes())


def stream(functions, n, seed):
    """(tasks, n) regrets of a stream, and its memory."""
    memory, regrets = None, []
    for t, f in enumerate(functions):
        task, regret = play(f, memory, n, 100 * seed + t)
        memory = fold(task, memory)
        regrets.append(regret)
    return np.array(regrets), memory


@cache
def scores(sigma, repetitions, n=15, tasks=3):
    """(repetitions, tasks - 1, n) regrets of tasks 2 and later, with memory and afresh."""
    remembering, afresh = [], []
    for seed in range(repetitions):
        functions = sequence(sigma, np.random.default_rng(50 + seed), tasks)
        remembering.append(stream(functions, n, seed)[0][1:])
        afresh.append([play(f, None, n, 100 * seed + t)[1] for t, f in enumerate(functions) if t])
    return np.array(remembering), np.array(afresh)


def test_scoreboard_of_related_tasks_is_at_most_half_of_starting_afresh():
    remembering, afresh = scores(0.05, 5)
    assert remembering[..., 9].mean() < 0.5 * afresh[..., 9].mean()
    assert remembering[..., 14].mean() < 0.5 * afresh[..., 14].mean() + 0.001


def test_scoreboard_of_strangers_is_at_most_half_more_than_starting_afresh():
    remembering, afresh = scores(1.0, 5)
    for n in (10, 15):  # the margin is that of ten tasks; with a hundred, the two are level
        assert remembering[..., n - 1].mean() < 1.5 * afresh[..., n - 1].mean() + 0.002


def test_the_third_task_needs_three_trials_for_what_took_ten():
    remembering, afresh = scores(0.05, 5)
    assert remembering[:, 1, 2].mean() < afresh[:, 1, 9].mean()
    assert remembering[:, 1, 9].mean() < 0.25 * afresh[:, 1, 9].mean()


@dataclass(frozen=True)
class Bowl:
    at: float

    def __call__(self, X):
        return 3.0 * np.abs(X - [self.at, 0.9]).sum(axis=1) ** 1.5


@cache
def alternating(seed):
    """Regret @10 of the third A of A B A B A, of the third of A A A, and of the same afresh; and the first's memory."""
    A = sequence(0.05, np.random.default_rng(seed), 3)
    pure, _ = stream(A, 15, seed)
    mixed, memory = stream([A[0], Bowl(0.1), A[1], Bowl(0.13), A[2]], 15, seed)
    _, afresh = play(A[2], None, 10, seed)
    return (mixed[4, 9], pure[2, 9], afresh[9]), memory


ALTERNATING = range(6)


@pytest.mark.parametrize("seed", ALTERNATING)
def test_of_two_families_in_turn_the_third_of_one_reopens_its_own(seed):
    sharing = alternating(seed)[1].sharing
    homes = _homes(sharing)
    assert homes[4] in homes[[0, 2]]
    assert homes[1] == homes[3] not in homes[[0, 2, 4]]
    assert sharing[[0, 2, 4], homes[1]].max() < 0.05
    assert sharing[np.ix_([1, 3], homes[[0, 2, 4]])].max() < 0.05


def test_of_two_families_in_turn_each_finds_its_one_home():
    homes = np.array([_homes(alternating(seed)[1].sharing) for seed in ALTERNATING])
    assert (homes[:, 0] == homes[:, 2]).sum() >= len(ALTERNATING) - 1  # now and then the second founds one of its own


def _homes(sharing):
    return 1 + sharing[:, 1:].argmax(axis=1)


def test_of_two_families_in_turn_the_third_of_one_is_as_good_as_in_a_stream_of_its_own():
    mixed, pure, afresh = np.mean([alternating(seed)[0] for seed in ALTERNATING], axis=0)
    assert mixed < pure + 0.25 * afresh


def after_a_past_of_relatives(seed):
    """Posteriors after twelve trials of a stranger, and of a relative of the two tasks remembered."""
    rng = np.random.default_rng(20 + seed)
    _, memory = stream(sequence(0.05, rng, 2), 12, seed)
    functions = synthetic.draw(rng), sequence(0.05, rng, 1)[0]
    tasks = [play(f, memory, 12, seed)[0] for f in functions]
    return [MODEL.fit(task, memory, SEED, None) for task in tasks]


def test_a_stranger_rests_on_itself_and_a_relative_leans_on_memory():
    strangers, relatives = zip(*(after_a_past_of_relatives(seed) for seed in range(5)), strict=True)
    # Leaning a little is next to leaning on nothing, so what counts is how far predictions rest on memory.
    alone = [posterior.sharing(posterior.X[0])["alone"] for posterior in strangers]
    assert min(alone) > 0.8
    assert np.mean(alone) > 0.9
    assert np.median([_weight_of_alone(posterior) for posterior in relatives]) < 0.2


def _weight_of_alone(posterior):
    scores = np.array([h.score for h in posterior.finalists])
    return float(np.exp(scores - logsumexp(scores))[[h.m is None for h in posterior.finalists]][0])


# Noise


def crowding(model):
    """The most trials in one place, of fifty in a noisy task after a stranger; on average over four streams."""
    crowds = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        stream = lbo.Stream("noisy", InMemoryStorage())
        for f, n in zip(sequence(1.0, rng, 2), (20, 50), strict=True):
            study = stream.study(f"{n} trials", seed=seed, model=model)
            for _ in range(n):
                trial = study.ask()
                x = np.array([[trial.suggest_float(name, 0, 1) for name in ("x01", "x02")]])
                study.tell(trial, float(f(x)[0] + 0.3 * f.std * rng.normal()))
        X = np.array([[*trial.params.values()] for trial in study.trials])
        crowds.append((np.abs(X[:, None] - X).max(axis=-1) < 0.02).sum(axis=1).max())
    return np.mean(crowds)


def test_a_search_under_noise_does_not_try_one_place_for_ever():
    assert crowding(MODEL) < 10


def test_one_that_weighs_all_hypotheses_against_one_best_value_does():
    assert crowding(ablation.VARIANTS["without own bests"]) > 20


# Letting go


def misleading(kind, f, seed):
    """Twenty trials of a past that misleads about f."""
    X, rng = points(2, 20, seed), np.random.default_rng(seed)
    if kind == "sign flipped":
        y = -f(X)
    elif kind == "optimum in the opposite corner":
        y = f(1 - X)
    elif kind == "labels shuffled":
        y = rng.permutation(f(X))
    else:
        y = f(X) + f.std * rng.normal(size=20)
    return Task(X, y, SQUARE)


def misled(kind, seed):
    memory = None
    for t, f in enumerate(sequence(0.05, np.random.default_rng(seed), 3)):
        memory = fold(misleading(kind, f, 10 * seed + t), memory)
    return memory


SEEDS = range(3)
KINDS = ["sign flipped", "optimum in the opposite corner", "labels shuffled", "much noise"]


@cache
def regret_afresh():
    return np.array([play(Branin(), None, 20, seed)[1] for seed in SEEDS])


def regret_when_misled(kind):
    return np.array([play(Branin(), misled(kind, seed), 20, seed)[1] for seed in SEEDS])


@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_that_misleads_is_let_go_of(kind):
    assert regret_when_misled(kind)[:, 19].mean() < 1.5 * regret_afresh()[:, 19].mean() + 0.005


def test_a_model_that_cannot_let_go_stays_misled(monkeypatch):
    monkeypatch.setattr(lifelong, "LOGIT_RHO2", (7.9, 8.0))
    monkeypatch.setattr(lifelong, "log_weight", lambda past, m: -1e9 if m is None and past.tasks else 0.0)
    misled = regret_when_misled("optimum in the opposite corner")
    assert misled[:, 19].mean() > 1.5 * regret_afresh()[:, 19].mean() + 0.005


# Algorithms: choices that other parameters depend on


def three_bowls(second):
    """Each algorithm has a parameter of its own; `second` is by how much the second is worse than the first."""

    def objective(trial):
        algorithm = trial.suggest_categorical("algorithm", ["1", "2", "3"])
        x = trial.suggest_float(f"x{algorithm}", 0, 1)
        return (x - 0.3) ** 2 + {"1": 0.0, "2": second, "3": 0.3}[algorithm]

    return objective


def algorithms_tried(seed):
    """In a task where the second algorithm is best, after five in which it was poor; one digit a trial."""
    stream = lbo.Stream("s", storage=InMemoryStorage())
    for t, second in enumerate((0.3, 0.3, 0.3, 0.3, 0.3, -0.3)):
        study = stream.study(str(t), seed=seed)
        study.optimize(three_bowls(second), n_trials=15)
    return "".join(trial.params["algorithm"] for trial in study.trials)


def searches_that_find_it():
    """Of sixteen."""
    return sum("22" in algorithms_tried(seed) for seed in range(16))


def test_an_algorithm_that_the_past_thought_poor_is_found():
    assert searches_that_find_it() >= 15


def test_without_offsets_and_looks_a_third_of_the_searches_miss_it(monkeypatch):
    monkeypatch.setattr(lifelong, "PACE", 10**6)
    monkeypatch.setattr(component, "BETA", 0.0)
    assert searches_that_find_it() <= 12


def conditional_task(kinds):
    task = mixed_task(len(kinds), 0, X_OF_A)
    U = task.space.sample(np.random.default_rng(0), len(kinds))
    U[:, 0] = task.space.to_unit([{"kind": kind} for kind in kinds])[:, 0]
    return Task(task.space.encode(task.space.without_inactive(U)), task.y, task.space)


def test_a_task_has_tried_an_algorithm_for_every_five_trials():
    memory = remember(MODEL, mixed_task(20, 0, X_OF_A))
    assert MODEL.opening(conditional_task("aaaa"), memory) is None
    assert MODEL.opening(conditional_task("aaaaa"), memory)["kind"] == "b"  # the past's favourite of the other two
    assert MODEL.opening(conditional_task("abaaaaaaa"), memory) is None
    assert MODEL.opening(conditional_task("abaaaaaaaa"), memory)["kind"] == "c"
    assert MODEL.opening(conditional_task("abc" + 30 * "a"), memory) is None
    assert MODEL.opening(conditional_task("aaaaa"), None) is None


def test_of_equal_choices_the_second_is_not_asked_for_since_optuna_records_the_first():
    flat = space_of(kind=CategoricalDistribution([1, True]), x=FloatDistribution(0, 1))
    space = Space(flat.axes, (("x", Condition("kind", (1,))),))
    X = space.encode(space.sample(np.random.default_rng(0), 12))
    task = Task(X, X[:, -1], space)
    assert (space.branching & ~X.any(axis=0)).sum() == 1
    assert MODEL.opening(task, remember(MODEL, task)) is None


# Failures remembered


def right_half(X):
    return X[:, 0] > 0.45


def test_a_half_that_failed_in_past_tasks_is_avoided_in_the_next_even_in_a_stranger():
    careful = afresh = 0
    for seed in range(3):
        memory = None
        for t, f in enumerate(sequence(0.05, np.random.default_rng(seed), 2)):
            X = points(2, 25, 10 * seed + t)
            memory = fold(Task(X, np.where(right_half(X), np.nan, f(X)), SQUARE), memory)
        for f in (synthetic.draw(np.random.default_rng(10 * seed + t)) for t in range(3)):
            careful, afresh = (
                count + right_half(play(f, m, 10, fails=right_half)[0].X).sum()
                for count, m in ((careful, memory), (afresh, None))
            )
    assert careful < 0.6 * afresh  # of ninety trials
