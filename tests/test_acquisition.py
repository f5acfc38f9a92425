"""Expected Improvement far into its tails, and its maximiser in every kind of space."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from scipy.integrate import quad

from lbo import acquisition
from lbo.axis import Axis
from lbo.growth import Shown, learn_space
from lbo.space import Array, Condition, Space

# log EI


def log_h(z: float) -> float:
    """log E max(z - e, 0), e ~ N(0, 1), by integrating phi(z) t exp(z t - t^2 / 2) over t > 0.

    The integrand is positive, so nothing cancels, and t = s / c has it near s = 1 at every z.
    """
    c = max(1.0, -z)
    value, _ = quad(lambda s: s * np.exp(z * s / c - (s / c) ** 2 / 2), 0, np.inf, epsabs=0, epsrel=1e-12)
    return float(np.log(value) - 2 * np.log(c) - z**2 / 2 - np.log(2 * np.pi) / 2)


@pytest.mark.parametrize("z", [-1e8, -1e5, -10_001.0, -9_999.0, -1e3, -40.0, -10.0, -1.001, -0.999, 0.0, 1.0, 8.0])
def test_log_ei_is_the_integral(z: float) -> None:
    ours = acquisition.log_ei(np.array([z]), np.array([1.0]))[0]
    assert ours == pytest.approx(log_h(z), rel=1e-9, abs=1e-9)


def test_log_ei_scales_with_the_standard_deviation() -> None:
    mean, std = -0.5, 0.3
    ours = acquisition.log_ei(np.array([mean]), np.array([std**2]))[0]
    assert ours == pytest.approx(np.log(std) + log_h(mean / std), abs=1e-10)


def test_log_ei_is_finite_and_falls_all_the_way_down() -> None:
    z = -np.concatenate([np.linspace(-40, 40, 2001), np.geomspace(41, 1e12, 2000)])
    value = acquisition.log_ei(z, np.ones_like(z))
    assert np.isfinite(value).all()
    assert (np.diff(value) < 0).all()


def test_a_certain_model_is_taken_at_its_word() -> None:
    value = acquisition.log_ei(np.array([0.5, -0.5, -1.5]), np.zeros(3))
    assert value[0] == pytest.approx(np.log(0.5))
    assert np.isfinite(value).all()
    assert value[0] > value[1] > value[2]


def test_log_ei_grows_with_the_variance_where_the_mean_is_no_better() -> None:
    value = acquisition.log_ei(np.zeros(6), np.array([0.0, 1e-30, 1e-10, 1e-3, 1.0, 1e6]))
    assert (np.diff(value) > 0).all()


class Mixture:
    """A surrogate with given components, whatever the point."""

    def __init__(self, log_w: Array, mean: Array, var: Array) -> None:
        self.components = log_w, mean, var

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        return self.components


def test_the_acquisition_is_the_mean_of_the_components_ei() -> None:
    w, mean, var = np.array([0.2, 0.8]), np.array([[0.1, 2.0], [-1.0, 0.5]]), np.array([[0.5, 1.0], [0.1, 2.0]])
    ours = acquisition.log_acquisition(Mixture(np.log(w), mean, var), np.zeros((2, 1)))
    rng = np.random.default_rng(0)
    gain = mean + np.sqrt(var) * rng.standard_normal((400_000, 2, 2))
    np.testing.assert_allclose(np.exp(ours), w @ np.maximum(gain, 0).mean(axis=0), rtol=0.02)


# Its maximum


class Bowl:
    """A surrogate whose EI is highest where a loss over configurations is lowest."""

    def __init__(self, loss: Callable[[Array], Array]) -> None:
        self.loss = loss

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        mean = -self.loss(X)[None]
        return np.zeros(1), mean, np.full_like(mean, 0.01)


def near(space: Space, params: dict[str, Any]) -> Bowl:
    """The loss is the distance from one configuration."""
    target = space.encode(space.to_unit([params]))
    return Bowl(lambda X: ((X - target) ** 2).sum(axis=1))


def space_of(conditions: tuple[tuple[str, Condition], ...] = (), **by_name: BaseDistribution) -> Space:
    return Space(tuple(Axis(name, d, d) for name, d in sorted(by_name.items())), conditions)


def nothing(space: Space) -> Array:
    return np.empty((0, len(space.axes)))


def found(space: Space, surrogate: Bowl, seed: int = 0, starts: Array | None = None) -> dict[str, Any]:
    starts = nothing(space) if starts is None else starts
    u = acquisition.maximise(surrogate, space, starts, nothing(space), np.random.default_rng(seed))
    return {name: space.from_unit(u)[name] for name, x in zip(space.names, u, strict=True) if not np.isnan(x)}


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_a_continuous_optimum_is_found(dimensions: int) -> None:
    names = [f"x{i}" for i in range(dimensions)]
    space = space_of(**{name: FloatDistribution(0, 1) for name in names})
    target = dict(zip(names, [0.123, 0.9, 0.0, 0.55, 1.0], strict=False))
    for seed in range(3):
        best = found(space, near(space, target), seed)
        assert max(abs(best[name] - target[name]) for name in names) < 1e-2


def test_an_integer_optimum_is_found() -> None:
    space = space_of(
        a=IntDistribution(0, 10**6), b=IntDistribution(1, 5000, log=True), c=IntDistribution(-50, 50, step=5)
    )
    best = found(space, near(space, {"a": 654_321, "b": 700, "c": -35}))
    assert best["a"] == pytest.approx(654_321, abs=10_000)
    assert best["b"] == pytest.approx(700, rel=0.05)
    assert best["c"] == -35


def test_a_categorical_optimum_is_found() -> None:
    space = space_of(**{name: CategoricalDistribution(["a", None, 1.5, True, "e"]) for name in "abcdefg"})
    assert space.size > acquisition.GRID
    target = dict(zip("abcdefg", [None, True, "e", "a", 1.5, None, None], strict=True))
    assert found(space, near(space, target)) == target


def test_a_mixed_optimum_is_found() -> None:
    space = space_of(
        a=CategoricalDistribution(["x", "y", "z"]),
        b=FloatDistribution(1e-6, 1, log=True),
        c=IntDistribution(1, 20),
        d=FloatDistribution(-1, 1),
    )
    best = found(space, near(space, {"a": "y", "b": 1e-4, "c": 13, "d": 0.3}))
    assert (best["a"], best["c"]) == ("y", 13)
    assert np.log10(best["b"]) == pytest.approx(-4, abs=0.06)
    assert best["d"] == pytest.approx(0.3, abs=0.02)


def conditional() -> Space:
    """Three algorithms, each with a parameter of its own."""
    by_name = {"algo": CategoricalDistribution(["p", "q", "r"])} | {f"x{a}": FloatDistribution(0, 1) for a in "pqr"}
    trials = [{"algo": a, f"x{a}": 0.5} for a in "pqr"]
    return learn_space([Shown(t, {name: by_name[name] for name in t}, True) for t in trials])


def test_a_conditional_optimum_is_found_in_its_branch() -> None:
    space = conditional()
    best = found(space, near(space, {"algo": "q", "xq": 0.2}))
    assert set(best) == {"algo", "xq"}
    assert best["algo"] == "q"
    assert best["xq"] == pytest.approx(0.2, abs=1e-2)


def test_a_climb_from_a_start_changes_branch_and_wakes_its_parameter() -> None:
    """Only next to the start is anything to be seen, and the best there is in a branch that the start is not in."""
    names = [f"y{i}" for i in range(4)]
    by_name: dict[str, BaseDistribution] = {"algo": CategoricalDistribution(["p", "r"])}
    by_name |= {name: FloatDistribution(0, 1) for name in ("xp", "xr", *names)}
    trials = [{"algo": a, f"x{a}": 0.5, **dict.fromkeys(names, 0.5)} for a in "pr"]
    space = learn_space([Shown(t, {name: by_name[name] for name in t}, True) for t in trials])
    columns = {key: i for i, key in enumerate(space.columns)}

    def loss(X: Array) -> Array:
        Y = X[:, [columns[name, None] for name in names]]
        ball = np.exp(-((Y - 0.2) ** 2).sum(axis=1) / (2 * 0.02**2))
        in_r = X[:, columns["algo", "r"]] > 0
        return 1 - ball * (0.5 + 0.5 * in_r * np.exp(-((X[:, columns["xr", None]] - 0.9) ** 2) / 0.02))

    starts = space.to_unit([{"algo": "p", "xp": 0.1, **dict.fromkeys(names, 0.21)}])
    for seed in range(3):
        best = found(space, Bowl(loss), seed, starts)
        assert set(best) == {"algo", "xr", *names}
        assert best["xr"] == pytest.approx(0.9, abs=0.05)
        assert all(best[name] == pytest.approx(0.2, abs=0.02) for name in names)


def test_the_same_generator_gives_the_same_point() -> None:
    space = space_of(a=FloatDistribution(0, 1), b=CategoricalDistribution("xyz"))
    once, again, other = (found(space, near(space, {"a": 0.3, "b": "z"}), seed) for seed in (1, 1, 2))
    assert once == again != other


def test_a_flat_or_broken_surrogate_still_gives_a_point() -> None:
    space = space_of(a=FloatDistribution(0, 1))
    for value in (0.0, np.nan, 1e9):
        assert 0 <= found(space, Bowl(lambda X, value=value: np.full(len(X), value)))["a"] <= 1


def test_points_where_the_surrogate_breaks_are_passed_over() -> None:
    space = space_of(**{name: FloatDistribution(0, 1) for name in "abcd"})
    best = found(space, Bowl(lambda X: np.where((X > 0.5).any(axis=1), np.nan, ((X - 0.5) ** 2).sum(axis=1))))
    assert all(value == pytest.approx(0.5, abs=0.03) for value in best.values())


# Nothing twice


def ask_all(space: Space, asks: int) -> list[tuple[Any, ...]]:
    """The configurations of that many asks, each taken once asked; inactive parameters left out."""
    surrogate = near(space, space.from_unit(np.full(len(space.axes), 0.3)))
    taken, rows = nothing(space), []
    for i in range(asks):
        u = acquisition.maximise(surrogate, space, taken[-5:], taken, np.random.default_rng(i))
        params = space.from_unit(u)
        # What a trial would read back, rather than the point itself.
        there = {name: params[name] for name, x in zip(space.names, u, strict=True) if not np.isnan(x)}
        taken = np.vstack([taken, space.to_unit([there])])
        rows.append(tuple(there.items()))
    return rows


FINITE = {
    "choices": space_of(a=CategoricalDistribution(["x", None]), b=CategoricalDistribution([1, 2.5, True])),
    "integers": space_of(a=IntDistribution(1, 5), b=IntDistribution(0, 30, step=10)),
    "log integers": space_of(a=IntDistribution(1, 40, log=True)),
    "steps": space_of(a=FloatDistribution(0, 1, step=0.1), b=IntDistribution(7, 7)),
    "conditions": space_of(
        (("b", Condition("a", ("x",))), ("c", Condition("b", low=3))),
        a=CategoricalDistribution(["x", "y"]), b=IntDistribution(1, 4), c=CategoricalDistribution(["u", "v"]),
    ),
}  # fmt: skip
SIZES = {"choices": 4, "integers": 20, "log integers": 40, "steps": 11, "conditions": 1 + 2 + 2 * 2}


@pytest.mark.parametrize("name", FINITE)
def test_a_finite_space_is_asked_through_without_a_repeat(name: str) -> None:
    rows = ask_all(FINITE[name], SIZES[name] + 2)  # True is 1 for Optuna, so "choices" has two of b
    assert len(set(rows[: SIZES[name]])) == SIZES[name]
    assert set(rows[SIZES[name] :]) <= set(rows)


def large_grid() -> Space:
    return space_of(**{name: IntDistribution(0, 9) for name in "abcd"})


@pytest.mark.parametrize("left", [1, 3, 200])
def test_what_is_left_of_ten_thousand_is_found(left: int) -> None:
    space = large_grid()
    for seed in range(5):
        U = np.random.default_rng(seed).permutation(space.grid())
        free, taken = U[:left], U[left:]
        surrogate = near(space, space.from_unit(taken[0]))
        u = acquisition.maximise(surrogate, space, taken[:5], taken, np.random.default_rng(seed))
        assert acquisition.is_taken(u, free)


def test_the_best_of_ten_thousand_is_found_and_then_the_next_best() -> None:
    space = large_grid()
    target = {"a": 3, "b": 9, "c": 0, "d": 5}
    first, second = ask_best(space, target, nothing(space)), ask_best(space, target, space.to_unit([target]))
    assert first == target
    assert sum(abs(second[name] - target[name]) for name in target) == 1


def ask_best(space: Space, target: dict[str, Any], taken: Array) -> dict[str, Any]:
    u = acquisition.maximise(near(space, target), space, nothing(space), taken, np.random.default_rng(0))
    return space.from_unit(u)


def test_an_exhausted_large_grid_gives_its_best_again() -> None:
    space = large_grid()
    assert ask_best(space, {"a": 3, "b": 9, "c": 0, "d": 5}, space.grid()) == {"a": 3, "b": 9, "c": 0, "d": 5}


def test_a_point_outside_a_range_that_narrowed_does_not_take_its_edge() -> None:
    wide, narrow = IntDistribution(0, 9), IntDistribution(0, 3)
    space = learn_space([Shown({"n": n}, {"n": d}, True) for n, d in ((8, wide), (9, wide), (0, narrow), (1, narrow))])
    taken = space.to_unit([{"n": n} for n in (8, 9, 0, 1, 2)])
    assert ask_best(space, {"n": 0}, taken) == {"n": 3}


def test_an_inactive_parameter_is_the_same_whatever_bits_its_nan_has() -> None:
    assert acquisition.is_taken(np.array([0.5, np.nan]), np.array([[0.5, -np.nan]]))
    assert not acquisition.is_taken(np.array([0.5, np.nan]), np.array([[0.5, 0.5]]))


def test_of_the_few_that_are_left_the_best_is_taken() -> None:
    space = large_grid()
    target = {"a": 3, "b": 9, "c": 0, "d": 5}
    U = space.grid()
    distance = ((U - space.to_unit([target])) ** 2).sum(axis=1)
    near_by = int(np.argsort(distance, kind="stable")[200])
    free = [0, near_by, len(U) - 1]
    assert ask_best(space, target, np.delete(U, free, axis=0)) == space.from_unit(U[near_by])


def test_candidates_are_chosen_by_ei_and_not_twice() -> None:
    space = space_of(a=FloatDistribution(0, 1), b=CategoricalDistribution("xy"))
    rows = [{"a": 0.1, "b": "x"}, {"a": 0.4, "b": "x"}, {"a": 0.32, "b": "y"}]
    candidates, surrogate = space.to_unit(rows), near(space, {"a": 0.3, "b": "x"})
    first = acquisition.choose(surrogate, space, candidates, nothing(space))
    np.testing.assert_array_equal(first, candidates[1])
    second = acquisition.choose(surrogate, space, candidates, first[None])
    np.testing.assert_array_equal(second, candidates[0])
    np.testing.assert_array_equal(acquisition.choose(surrogate, space, candidates, candidates), candidates[1])


def test_the_first_free_of_a_pool() -> None:
    space = space_of(a=IntDistribution(0, 3))
    grid = space.grid()
    np.testing.assert_array_equal(acquisition.first_free(space, grid[[1, 1, 2]], grid[[1]]), grid[2])
    np.testing.assert_array_equal(acquisition.first_free(space, grid[[1, 1]], grid[[0, 1, 2]]), grid[3])
    np.testing.assert_array_equal(acquisition.first_free(space, grid[[1, 1]], grid), grid[1])
