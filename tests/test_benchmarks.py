"""The parts of `benchmarks/` that compute: adapters, weights, ranks, counts and what is kept of a killed run."""

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import cold_start
import contenders
import encoded
import floor
import latency
import machine
import peers
import ranking
import rgpe
import throughput
import workload
from lbo.experiments import runner
from lbo.experiments.sequences import BraninSequence
from lbo.maths import gaussian, matern
from lbo.space import Axis, Space
from lbo.trials import space_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

rng = np.random.default_rng


# Adapters


def mixed_space():
    distributions = {
        "c": CategoricalDistribution(["a", "b", "c"]),
        "f": FloatDistribution(1e-3, 10, log=True),
        "i": IntDistribution(1, 9),
        "one": CategoricalDistribution(["only"]),
    }
    return Space(tuple(Axis(name, d, d) for name, d in distributions.items()))


def test_what_is_encoded_is_decoded():
    space = mixed_space()
    for params in ({"c": c, "f": f, "i": i, "one": "only"} for c in "abc" for f in (0.001, 0.5, 10.0) for i in (1, 9)):
        decoded = encoded.decode(space, encoded.encode(space, [params])[0])
        assert decoded == pytest.approx(params)


def test_bounds_are_the_least_box_around_what_is_encoded():
    space = mixed_space()
    corners = [{"c": c, "f": f, "i": i, "one": "only"} for c in "abc" for f in (1e-3, 10.0) for i in (1, 9)]
    X, (low, high) = encoded.encode(space, corners), encoded.bounds(space)
    np.testing.assert_array_equal(X, np.clip(X, low, high))
    continuous = np.array([space.axes[j].name != "i" for j in space.column_axis])  # an integer sits inside its cell
    np.testing.assert_allclose(X.min(axis=0)[continuous], low[continuous])
    np.testing.assert_allclose(X.max(axis=0)[continuous], high[continuous])


class Fixed(encoded.EncodedSampler):
    """Always suggests the same, and notes what it was shown."""

    def suggest(self, space, done):
        self.shown = (space.names, len(done))
        return {"x": 0.25, "y": 7}


def test_a_sampler_is_asked_once_the_initial_trials_are_there():
    study = optuna.create_study(sampler=Fixed(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_int("y", 0, 9), n_trials=6)
    assert [trial.params for trial in study.trials[:5]] != [{"x": 0.25, "y": 7}] * 5
    assert study.trials[5].params == {"x": 0.25, "y": 7}
    assert study.sampler.shown == (("x", "y"), 5)


def test_candidates_that_were_tried_are_not_left():
    candidates = [{"x": 0.1, "y": 1}, {"x": 0.2, "y": 2}]
    sampler = Fixed(seed=0, candidates=candidates)
    distributions = {"x": FloatDistribution(0, 1), "y": IntDistribution(0, 9)}
    done = [optuna.create_trial(params={"y": 1, "x": 0.1}, distributions=distributions, value=0.0)]
    assert sampler.left(done) == candidates[1:]


def test_smac_gets_the_conditions_that_trials_show():
    pytest.importorskip("smac")
    from smac_sampler import configuration_space

    space = space_of(workload.random_trials(60, seed=0), None)
    configurations = configuration_space(space, seed=0)
    for _ in range(20):
        drawn = dict(configurations.sample_configuration())
        assert set(drawn) == {"model", *workload.BRANCH[drawn["model"]]}


@pytest.fixture
def one_torch_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("name", ["SingleTaskSampler", "MultiTaskSampler", "EnsembleSampler"])
def test_botorch_beats_its_initial_points(name):
    pytest.importorskip("botorch")
    import botorch_samplers

    def objective(trial):
        return (trial.suggest_float("x", 0, 1) - 0.3) ** 2 + (trial.suggest_float("y", 0, 1) - 0.6) ** 2

    past = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    past.optimize(objective, n_trials=12)
    known = {} if name == "SingleTaskSampler" else {"past": [past.trials]}
    study = optuna.create_study(sampler=getattr(botorch_samplers, name)(seed=0, **known))
    study.optimize(objective, n_trials=9)
    values = [trial.value for trial in study.trials]
    assert min(values[5:]) < 0.1 * min(values[:5])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("name", ["MultiTaskSampler", "EnsembleSampler"])
def test_botorch_follows_a_space_that_grows_within_a_task(name):
    pytest.importorskip("botorch")
    import botorch_samplers

    past = [workload.random_trials(8, seed=1)]
    sampler = getattr(botorch_samplers, name)(seed=0, past=past)
    trials = workload.random_trials(60, seed=0)
    grown = next(n for n in range(6, 60) if space_of(trials[:n], None) != space_of(trials[:5], None))
    for n in (5, grown):
        space = space_of(trials[:n], None)
        assert set(sampler.suggest(space, trials[:n])) <= set(space.names)


# RGPE


def test_ranking_loss_counts_pairs_in_the_wrong_order():
    z = np.array([1.0, 2.0, 3.0])
    f = np.array([[10.0, 20.0, 30.0], [3.0, 2.0, 1.0], [2.0, 1.0, 3.0]])
    assert rgpe.ranking_losses(f, z).tolist() == [0, 6, 2]


def test_own_model_that_knows_the_values_misranks_nothing():
    z = np.array([3.0, 1.0, 2.0])
    assert rgpe.own_ranking_losses(z, np.zeros(3), z, rng(0), 4).tolist() == [0] * 4


def test_left_out_predictions_are_those_of_the_other_values():
    A = rng(0).normal(size=(6, 6))
    K, r = A @ A.T + np.eye(6), rng(1).normal(size=6)
    mean, std = rgpe.left_out(K, r)
    others = np.arange(6) != 2
    weights = np.linalg.solve(K[np.ix_(others, others)], K[others, 2])
    assert mean[2] == pytest.approx(weights @ r[others])
    assert std[2] ** 2 == pytest.approx(K[2, 2] - weights @ K[others, 2])


def test_weights_go_to_whoever_ranks_best():
    good, bad, own = np.zeros(100), np.full(100, 8.0), np.full(100, 3.0)
    np.testing.assert_allclose(rgpe.weights(np.array([good, bad, own]), rng(0)), [1, 0, 0])


def test_weights_of_equals_are_shared():
    shared = rgpe.weights(np.zeros((2, 4000)), rng(0))
    np.testing.assert_allclose(shared, 0.5, atol=0.05)


def test_a_model_worse_than_the_task_alone_gets_no_weight_even_where_it_is_lucky():
    worse, own = np.full(100, 9.0), np.full(100, 5.0)
    worse[:10] = 0.0
    np.testing.assert_allclose(rgpe.weights(np.array([worse, own]), rng(0)), [0, 1])


# Ranks


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_difference_is_that_of_the_tables(k, q):
    """Demsar 2006, table 5."""
    assert ranking.critical_difference(k, 30) == pytest.approx(q * np.sqrt(k * (k + 1) / 180), abs=2e-3)


def test_groups_join_what_does_not_differ():
    assert ranking.alike([1.0, 1.8, 2.5, 4.0], 1.0) == [(0, 1), (1, 2)]
    assert ranking.alike([1.0, 1.5, 2.0], 1.0) == [(0, 2)]
    assert ranking.alike([1.0, 3.0], 1.0) == []


def test_friedman_tells_a_leader_from_equals():
    losses = rng(0).random((30, 4))
    assert ranking.friedman_p(ranking.ranks(losses)) > 0.01
    assert ranking.friedman_p(ranking.ranks(losses - [0.5, 0, 0, 0])) < 1e-4


# The floor


def test_arithmetic_is_counted_where_it_is_done():
    A, y = np.eye(30), np.ones(30)
    with floor.counted() as work:
        gaussian.log_evidence_grad(A, y)
        gaussian.predict(gaussian.factorise(A, y), np.ones((7, 30)), np.ones(7))
        matern.kernel(np.zeros((7, 2)), np.zeros((5, 2)), np.ones(2), 1.0)
        matern.kernel_tape(np.zeros((4, 2)), np.ones(2), 1.0)
    assert work.flops == pytest.approx((2 + 1 + 2) * 30**3 / 3 + 30**2 * 7)
    assert work.entries == 35 + 16
    assert work.evidences == 1


def test_nothing_is_counted_afterwards():
    with floor.counted() as work:
        pass
    gaussian.factorise(np.eye(4), np.ones(4))
    assert work.flops == 0


def test_an_ask_of_the_default_model_is_counted():
    study = latency.alone()
    workload.fill(study, 12, seed=0)
    with floor.counted() as work:
        workload.ask_and_tell(study)
    assert work.evidences > 10
    assert work.flops > work.evidences * 12**3


def test_floor_is_the_time_of_both_kinds_of_work():
    speed = floor.Speed(flops_per_second=1e9, seconds_per_entry=1e-8)
    assert speed.floor(floor.Work(flops=2e6, entries=1e5)) == pytest.approx(0.002 + 0.001)


# Workload, workers, imports


def test_conditional_trials_have_one_branch_and_flat_ones_everything():
    for trial in workload.random_trials(20, seed=0):
        assert set(trial.params) == {"model", *workload.BRANCH[trial.params["model"]]}
    assert all(set(trial.params) == set(workload.SPACE) for trial in workload.random_trials(5, seed=0, flat=True))


def test_duplicates_are_counted_once_each():
    a, b = {"x": 1, "y": 2}, {"x": 1}
    assert throughput.duplicates([a, b]) == 0
    assert throughput.duplicates([a, b, {"y": 2, "x": 1}, a]) == 2


def test_a_stopwatch_counts_calls_within_calls_once():
    storage = optuna.storages.InMemoryStorage()
    watch = throughput.Stopwatch(storage)
    study = optuna.create_study(storage=storage)
    before = watch.calls
    storage.get_n_trials(study._study_id)  # which calls get_all_trials
    assert watch.calls == before + 1
    assert watch.seconds > 0


def test_imports_are_summed_by_package_after_the_named_one():
    printed = """import time: self [us] | cumulative | imported package
import time:       100 |        100 |   optuna.trial
import time:      2000 |       2100 | optuna
import time:       300 |        300 |   scipy.linalg
import time:       500 |        800 | scipy
import time:      1000 |       1000 | lbo
"""
    assert cold_start.imports_after("optuna", printed) == {"lbo": 0.001, "scipy": 0.0008}


def test_a_description_of_the_machine_has_what_a_reader_needs():
    description = machine.describe()
    assert description["packages"]["optuna"] == optuna.__version__
    assert description["cores"] >= 1
    assert str(description["cores"]) in machine.sentence(description)


# Peers


def past_task(values):
    distributions = {"x": FloatDistribution(0, 1)}
    return [optuna.create_trial(params={"x": x}, distributions=distributions, value=v) for x, v in values]


def test_winners_are_the_newest_first_and_none_twice():
    past = [past_task([(0.1, 5.0), (0.2, 4.0)]), past_task([(0.3, 1.0), (0.4, 2.0)]), past_task([(0.3, 0.0)])]
    assert contenders.winners(past) == [{"x": 0.3}, {"x": 0.2}]


def test_past_values_become_places_within_their_task():
    past = [past_task([(0.1, 500.0), (0.2, 400.0)]), past_task([(0.3, 1.0), (0.4, 2.0)])]
    assert [trial.value for trial in contenders.ranked(past)] == [2, 1, 1, 2]


def peer_unit(name, out):
    return runner.make_unit(BraninSequence(0.1, 3), contenders.CONTENDERS[name], 0, 7, 0, out)


def test_peers_start_from_the_same_points_unless_they_have_winners(tmp_path):
    rows = {}
    for name in ("TPE", "TPE, winners", "Random"):
        unit = peer_unit(name, tmp_path)
        peers.run_unit(unit)
        rows[name] = runner._whole_tasks(unit, 3)
    first = {name: [row.at for row in of_name if row.task == 1][:5] for name, of_name in rows.items()}
    assert first["TPE"] == first["Random"]
    best = min((row for row in rows["TPE, winners"] if row.task == 0), key=lambda row: row.value)
    assert first["TPE, winners"][0] == best.at


def test_a_killed_peer_goes_on_to_the_same_trials(tmp_path):
    whole, killed = peer_unit("TPE, winners", tmp_path / "whole"), peer_unit("TPE, winners", tmp_path / "killed")
    peers.run_unit(whole)

    calls = itertools.count()

    def kill_in_the_second_task(trials):
        if next(calls) > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        peers.run_peer(killed, kill_in_the_second_task)
    assert 7 < len(killed.path.read_text().splitlines()) < 14
    peers.run_unit(killed)
    assert runner._whole_tasks(killed, 3) == runner._whole_tasks(whole, 3)


def test_the_wall_clock_has_a_line_for_every_trial_of_a_run_that_went_on(tmp_path):
    unit = peer_unit("TPE", tmp_path)
    peers.run_unit(unit)
    lines = peers.wall_path(unit).read_text().splitlines()
    assert len(lines) == 21
    cut = unit.path.read_text().splitlines()[:9]
    unit.path.write_text("\n".join(cut) + "\n")
    peers.run_unit(unit)
    again = peers.wall_path(unit).read_text().splitlines()
    assert len(again) == 21
    assert again[:7] == lines[:7]


@pytest.mark.skipif(importlib.util.find_spec("cmaes") is None, reason="cmaes is not installed")
def test_cma_es_on_a_table_keeps_its_points_and_never_takes_a_row_twice():
    from lbo.experiments.problems import Rows
    from lbo.experiments.tables import Table

    distributions = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    points = rng(0).random((40, 2))
    rows = [{"x": float(x), "y": float(y)} for x, y in points]
    problem = peers.OwnPoints(Rows(Table("t", distributions, rows, points.sum(axis=1))))
    study = contenders.CONTENDERS["CMA-ES, warm"].study(0, problem, [])
    study.add_trials([problem.trial(i, 0.0) for i in range(5)])
    steps = [problem.step(study) for _ in range(20)]
    assert len({step.at for step in steps}) == 20
    assert all(trial.params not in rows for trial in study.trials[5:])
