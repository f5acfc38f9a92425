"""What every model must do: named checks, each a function of a model, for test modules to run over theirs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from lbo.acquisition import log_acquisition
from lbo.experiments.branin import Branin
from lbo.memory import Memory, Record
from lbo.models import latent
from lbo.models.base import Model, Posterior, Task, settings
from lbo.seeds import Seed
from lbo.space import Array, Axis, Space

SEED = Seed(7)
RELATIVE = Branin(a=1.05, r=6.2, s=9.5)  # of the standard Branin function


def space_of(**distributions) -> Space:
    return Space(tuple(Axis(name, d, d) for name, d in sorted(distributions.items())))


def mean_var(g: latent.Prepared, X: Array) -> tuple[Array, Array]:
    """Of a remembered function at X."""
    mean, var, _ = latent.mean_var_cov(g, X, latent.see(g, X))
    return mean, var


def cube(D: int) -> Space:
    return space_of(**{f"x{i + 1:02}": FloatDistribution(0, 1) for i in range(D)})


def points(D: int, n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((n, D))


def branin_task(n: int, f: Branin = Branin(), seed: int = 0) -> Task:  # noqa: B008
    X = points(2, n, seed)
    return Task(X, f(X), cube(2))


def remember(model: Model, task: Task, memory: Memory | None = None) -> Memory:
    """The memory after one more task, as the stream would make it and read it back."""
    lesson = model.consolidate(task, memory, SEED / "consolidate")
    i = int(np.nanargmin(task.y))
    winner = {name: 0.5 for name in task.space.names}
    record = Record("past", len(task), "", tuple(lesson.gates), lesson.hyper, ((winner, float(task.y[i])),))
    records = (*memory.records, record) if memory else (record,)
    return Memory.from_bytes(Memory(settings(model), task.space, records, lesson.arrays).to_bytes())


def moments(posterior: Posterior, X: Array) -> tuple[Array, Array]:
    """Mean and variance of the whole mixture, which must be finite, its variances positive."""
    log_w, mean, var = posterior.mixture(X)
    assert mean.shape == var.shape == (len(log_w), len(X))
    assert all(np.isfinite(part).all() for part in (log_w, mean, var))
    assert (var > 0).all()
    assert np.isfinite(posterior.to_user(mean)).all()
    assert np.isfinite(log_acquisition(posterior, X)).all()
    w = np.broadcast_to(np.exp(log_w).reshape(len(log_w), -1), mean.shape)
    succeeds = w.sum(axis=0)
    assert (succeeds > 0).all()
    assert (succeeds < 1 + 1e-9).all()  # what is missing is the chance that a trial fails
    w = w / succeeds
    m = (w * mean).sum(axis=0)
    return m, (w * (var + mean**2)).sum(axis=0) - m**2


def error(posterior: Posterior, f: Branin, seed: int = 99) -> float:
    """Root mean squared error at points not seen, in standard deviations of f."""
    X = points(2, 300, seed)
    mean, _ = moments(posterior, X)
    return float(np.sqrt(np.mean((posterior.to_user(mean) - f(X)) ** 2)) / f.std)


def fits_a_single_trial(model: Model) -> None:
    moments(model.fit(branin_task(1), None, SEED, None), points(2, 20, 1))


def fits_a_constant(model: Model) -> None:
    task = Task(points(2, 8), np.full(8, 3.25), cube(2))
    posterior = model.fit(task, None, SEED, None)
    mean, _ = moments(posterior, task.X)
    np.testing.assert_allclose(posterior.to_user(mean), 3.25, atol=1e-6)


def fits_contradicting_duplicates(model: Model) -> None:
    X = np.tile(points(2, 4), (3, 1))
    y = np.random.default_rng(2).normal(size=12)
    mean, _ = moments(model.fit(Task(X, y, cube(2)), None, SEED, None), X[:4])
    assert mean.std() < 2.0  # somewhere between the values, which standardised have deviation 1


def fits_failed_trials(model: Model) -> None:
    task = branin_task(10)
    some, all_but_one, all_failed = task.y.copy(), np.full(10, np.nan), np.full(10, np.nan)
    some[[0, 3, 4]] = np.nan
    all_but_one[5] = 1.0
    for y in (some, all_but_one, all_failed):
        moments(model.fit(Task(task.X, y, task.space), None, SEED, None), points(2, 20, 1))


def fits_values_of_any_size(model: Model) -> None:
    task = branin_task(10)
    unit = task.y / np.abs(task.y).max()
    for scale in (1e300, 1e-300):
        posterior = model.fit(Task(task.X, unit * scale, task.space), None, SEED, None)
        mean, _ = moments(posterior, task.X)
        assert np.corrcoef(posterior.to_user(mean) / scale, unit)[0, 1] > 0.8


def fits_fewer_and_more_trials_than_columns(model: Model) -> None:
    for D, n in ((12, 5), (1, 60)):
        X = points(D, n)
        moments(model.fit(Task(X, np.sin(5 * X[:, 0]), cube(D)), None, SEED, None), points(D, 20, 1))


def fits_choices_beside_numbers(model: Model) -> None:
    space = space_of(x=FloatDistribution(0, 1), kind=CategoricalDistribution(["a", "b", "c"]))
    X = space.encode(space.sample(np.random.default_rng(0), 30))
    y = (X[:, -1] - 0.3) ** 2 + 2.0 * (X[:, 1] > 0)
    posterior = model.fit(Task(X, y, space), None, SEED, None)
    X_new = space.encode(space.sample(np.random.default_rng(1), 100))
    mean, _ = moments(posterior, X_new)
    assert np.corrcoef(mean, X_new[:, 1])[0, 1] > 0.9


def is_surer_near_the_data(model: Model) -> None:
    task = branin_task(12)
    posterior = model.fit(task, None, SEED, None)
    _, near = moments(posterior, task.X + 1e-3)
    _, anywhere = moments(posterior, points(2, 200, 1))
    assert near.mean() < 0.5 * anywhere.mean()


def interpolates(model: Model) -> None:
    task = branin_task(30)
    posterior = model.fit(task, None, SEED, None)
    mean, _ = moments(posterior, task.X)
    assert np.sqrt(np.mean((posterior.to_user(mean) - task.y) ** 2)) < 0.15 * task.y.std()


def learns_from_more_trials(model: Model) -> None:
    few, many = (error(model.fit(branin_task(n), None, SEED, None), Branin()) for n in (8, 40))
    assert many < 0.5 * few


def is_the_same_with_and_without_previous(model: Model) -> None:
    task, X = branin_task(23), points(2, 30, 1)
    previous = None
    for n in (13, 14, 20, 21, 23):
        previous = model.fit(task.first(n), None, SEED, previous)
    resumed = model.fit(task, None, SEED, None)
    for ours, theirs in zip(previous.mixture(X), resumed.mixture(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(log_acquisition(previous, X), log_acquisition(resumed, X))


def is_deterministic(model: Model) -> None:
    X = points(2, 30, 1)
    one, two = (model.fit(branin_task(9), None, SEED, None) for _ in range(2))
    for ours, theirs in zip(one.mixture(X), two.mixture(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def believes_its_own_mean(model: Model) -> None:
    posterior = model.fit(branin_task(10), None, SEED, None)
    pending = points(2, 3, 5)
    believed = posterior.believe(pending)
    mean, var = moments(posterior, pending)
    mean_after, var_after = moments(believed, pending)
    # A Gaussian's mean stays exactly; of a mixture each component is drawn a little to the mean of all.
    alone = len(posterior.mixture(pending)[0]) == 1
    np.testing.assert_allclose(mean_after, mean, atol=1e-6 if alone else 0.05)
    assert (var_after < 0.7 * var).all()
    assert (log_acquisition(believed, pending) < log_acquisition(posterior, pending) - 0.5).all()
    _, elsewhere = moments(posterior, points(2, 50, 6))
    _, elsewhere_after = moments(believed, points(2, 50, 6))
    assert (elsewhere_after <= elsewhere + 1e-9).all()


def fits_beside_a_memory(model: Model) -> None:
    memory = remember(model, branin_task(20))
    memory = remember(model, branin_task(20, RELATIVE, seed=1), memory)
    assert error(model.fit(branin_task(30, seed=2), memory, SEED, None), Branin()) < 0.6


def follows_a_space_that_changes(model: Model) -> None:
    memory = remember(model, branin_task(15))
    longer = points(3, 15, 3)
    gained = Task(longer, RELATIVE(longer[:, :2]), cube(3))
    moments(model.fit(gained, memory, SEED, None), points(3, 20, 4))
    memory = remember(model, gained, memory)
    shorter = points(1, 15, 5)
    lost = Task(shorter, np.sin(4 * shorter[:, 0]), cube(1))
    moments(model.fit(lost, memory, SEED, None), points(1, 20, 6))
    remember(model, lost, memory)


def remembers_through_storage(model: Model) -> None:
    lesson = model.consolidate(branin_task(15), None, SEED / "consolidate")
    memory = remember(model, branin_task(15))
    assert memory.arrays.keys() == lesson.arrays.keys()
    for name, array in lesson.arrays.items():
        np.testing.assert_allclose(memory.arrays[name], array, rtol=1e-6, atol=1e-30)
    again = Memory.from_bytes(memory.to_bytes())
    assert again == memory
    X, task = points(2, 30, 1), branin_task(8, RELATIVE, seed=1)
    one, two = (model.fit(task, m, SEED, None).mixture(X) for m in (memory, again))
    np.testing.assert_array_equal(one[1], two[1])


def opens_with_nothing_or_a_configuration(model: Model) -> None:
    task = branin_task(0)
    assert model.opening(task, None) is None
    opening = model.opening(task, remember(model, branin_task(8)))
    assert opening is None or set(opening) <= set(task.space.names)


def is_described_by_its_settings(model: Model) -> None:
    fields = json.loads(json.dumps(settings(model)))
    assert fields.pop("name") == model.name
    assert type(model)(**fields) == model


CHECKS = [
    fits_a_single_trial,
    fits_a_constant,
    fits_contradicting_duplicates,
    fits_failed_trials,
    fits_values_of_any_size,
    fits_fewer_and_more_trials_than_columns,
    fits_choices_beside_numbers,
    is_surer_near_the_data,
    interpolates,
    learns_from_more_trials,
    is_the_same_with_and_without_previous,
    is_deterministic,
    believes_its_own_mean,
    fits_beside_a_memory,
    follows_a_space_that_changes,
    remembers_through_storage,
    opens_with_nothing_or_a_configuration,
    is_described_by_its_settings,
]

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


def of_models(*models: Model) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("model", models, ids=str)
