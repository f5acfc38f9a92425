"""LBOSampler: Optuna's own suites, resuming, parallel workers, bad input, and that it optimises."""

import json
import math
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

import lbo
from lbo import acquisition, sampler
from lbo.errors import SpaceError
from lbo.growth import Shown, learn_space
from lbo.models.base import plain_gain, standardise
from lbo.space import Space

TINY = lbo.models.Paper(networks=3, units=10, steps=5)


@dataclass(frozen=True)
class Bump:
    """A Gaussian process of fixed length scale: good enough to optimise with, and fitted in a millisecond."""

    name: ClassVar[str] = "Bump"

    initial: int = 5
    first: Mapping[str, Any] | None = None  # the opening

    def n_initial(self, memory):
        return self.initial

    def opening(self, task, memory):
        return self.first

    def fit(self, task, memory, seed, previous):
        return BumpPosterior(task.X, standardise(task.y)[0])


@dataclass(frozen=True)
class BumpPosterior:
    X: np.ndarray
    z: np.ndarray
    stranger: ClassVar[float] = 0.0

    def gain(self, X):
        return plain_gain(self.z.min(), self.mixture(X))

    def mixture(self, X):
        K = _kernel(self.X, self.X) + 1e-4 * np.eye(len(self.X))
        k = _kernel(X, self.X)
        var = 1 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
        return np.zeros(1), (k @ np.linalg.solve(K, self.z))[None], np.maximum(var, 1e-9)[None]

    def sharing(self, x):
        return {}

    def believe(self, X):
        return BumpPosterior(np.vstack([self.X, X]), np.append(self.z, self.mixture(X)[1][0]))


def _kernel(A, B):
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=-1) / (2 * 0.3**2))


def study_of(sampler: optuna.samplers.BaseSampler, **kwargs: Any) -> optuna.Study:
    return optuna.create_study(sampler=sampler, **kwargs)


def bump_study(**kwargs: Any) -> optuna.Study:
    return study_of(lbo.LBOSampler(**{"model": Bump(), "seed": 0} | kwargs))


def points(study: optuna.Study) -> list[tuple[Any, ...]]:
    return [tuple(t.params.items()) for t in study.trials]


def mixed(trial: Trial) -> float:
    """A conditional, mixed objective that sometimes fails, at its best 0."""
    x = trial.suggest_float("x", -2, 2)
    lr = trial.suggest_float("lr", 1e-5, 1, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    loss = (x - 0.5) ** 2 + (math.log10(lr) + 2) ** 2
    if kind == "a":
        n = trial.suggest_int("n", 1, 8)
        if n > 6:
            raise ValueError("too many")
        loss += abs(n - 3) / 4
    return loss + (kind is None)


class TestOptunaSuites(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], optuna.samplers.BaseSampler]:
        return lambda: lbo.LBOSampler(model=TINY, seed=0)


# Seeds


def test_the_same_seed_gives_the_same_trials_and_another_gives_others() -> None:
    def run(seed: int | None) -> list[Any]:
        study = study_of(lbo.LBOSampler(model=TINY, seed=seed))
        study.optimize(mixed, n_trials=9, catch=ValueError)
        return points(study)

    assert run(1) == run(1)
    assert run(1)[0] != run(2)[0]
    assert run(None)[0] != run(None)[0]


def test_a_pickled_sampler_goes_on_as_the_original() -> None:
    def run(interrupt: bool) -> list[Any]:
        study = study_of(lbo.LBOSampler(model=TINY, seed=1))
        study.optimize(mixed, n_trials=7, catch=ValueError)
        if interrupt:
            study.sampler = pickle.loads(pickle.dumps(study.sampler))
        study.optimize(mixed, n_trials=3, catch=ValueError)
        return points(study)

    assert run(interrupt=True) == run(interrupt=False)


RESUME = """
import sys, optuna, lbo
sys.path.insert(0, {tests!r})
from test_sampler import TINY, mixed
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(study_name="s", storage={storage!r}, load_if_exists=True,
                            sampler=lbo.LBOSampler(model=TINY, seed=3))
study.optimize(mixed, n_trials={n_trials}, catch=ValueError)
"""


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def finish(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_a_study_resumed_in_new_processes_equals_an_uninterrupted_one(tmp_path, request) -> None:
    def run(name: str, *sessions: int) -> list[Any]:
        storage = f"sqlite:///{tmp_path}/{name}.db"
        for n_trials in sessions:
            code = RESUME.format(tests=str(request.path.parent), storage=storage, n_trials=n_trials)
            finish(start(code))
        study = optuna.load_study(study_name="s", storage=storage)
        return [(t.state, t.params, t.values) for t in study.trials]

    whole = run("whole", 11)
    assert len({str(params) for _, params, _ in whole}) == 11
    assert run("resumed", 3, 4, 4) == whole


# Parallel workers


def test_a_running_trial_is_not_asked_for_again() -> None:
    study = bump_study()
    study.optimize(lambda t: t.suggest_int("n", 0, 9) + t.suggest_categorical("c", [0, 1]), n_trials=6)
    asked = [study.ask() for _ in range(14)]
    for trial in asked:
        trial.suggest_int("n", 0, 9)
        trial.suggest_categorical("c", [0, 1])
    assert len(set(points(study))) == 20


def coarse(trial: Trial) -> float:
    """Nine configurations, some of which JSON cannot hold."""
    choice = trial.suggest_categorical("c", [("odd",), math.nan, True])
    return trial.suggest_int("n", 0, 2) + (choice is True)


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_another_worker_sees_a_suggestion_before_its_objective_asks_for_it() -> None:
    study = bump_study()
    study.optimize(coarse, n_trials=7)
    slow, quick = study.ask(), study.ask()
    assert quick.relative_params  # worked out, and nothing suggested yet
    published = study.trials[8].system_attrs["lbo:suggestion"]
    assert published == json.loads(json.dumps(published, allow_nan=False))
    study.sampler = lbo.LBOSampler(model=Bump(), seed=1)
    coarse(slow)
    coarse(quick)
    assert len(set(map(str, points(study)))) == 9


def test_a_worker_works_out_what_another_has_not_published_yet() -> None:
    def objective(trial: Trial) -> float:
        return float(trial.suggest_int("x", 0, 50) - 20) ** 2

    def asks() -> tuple[Trial, Trial]:
        study = bump_study()
        study.optimize(objective, n_trials=6)
        return study.ask(), study.ask()

    first, second = asks()
    objective(second)  # the first one's suggestion is nowhere yet: Optuna asks for it with the first parameter
    alone, _ = asks()
    alone.study._storage.set_trial_state_values(_._trial_id, TrialState.FAIL)
    objective(alone)
    assert second.params != alone.params
    objective(first)
    assert second.params != first.params


def test_a_worker_gives_way_to_one_that_kept_the_point_before_it_was_published(monkeypatch) -> None:
    """The later trial publishes, looks round and keeps its point while the earlier one is about to publish the same."""

    def ask(number: int) -> dict[str, Any]:
        sampler = lbo.LBOSampler(model=Bump(), seed=0)
        return sampler.sample_relative(study, study.trials[number], study.trials[0].distributions)

    def publish_late(study: optuna.Study, trial: FrozenTrial, space: Space, suggestion: dict[str, Any]) -> None:
        if not published:
            published.append(suggestion)  # what the earlier one is about to publish
            published.append(ask(later.number))
        publish(study, trial, space, suggestion)

    study, published, publish = bump_study(), [], lbo.sampler._publish
    study.optimize(lambda t: sum((t.suggest_int(name, 0, 5) - 2) ** 2 for name in "xy"), n_trials=6)
    earlier, later = study.ask(), study.ask()
    monkeypatch.setattr(lbo.sampler, "_MAX_SHADOWED", 0)  # as with workers of other seeds
    monkeypatch.setattr(lbo.sampler, "_publish", publish_late)
    got = ask(earlier.number)
    assert published[0] == published[1]  # both wanted the same point
    assert got != published[1]


@pytest.mark.parametrize("grid", [False, True])
def test_threads_do_not_ask_for_the_same_point(grid: bool) -> None:
    def objective(trial: Trial) -> float:
        x, y = ((trial.suggest_int(name, 0, 6) / 6 if grid else trial.suggest_float(name, 0, 1)) for name in "xy")
        time.sleep(0.02)
        return (x - 0.3) ** 2 + (y - 0.7) ** 2

    study = bump_study()
    study.optimize(objective, n_trials=5)
    study.optimize(objective, n_trials=24, n_jobs=4)
    rounded = {tuple(round(value, 6) for value in t.params.values()) for t in study.trials}
    assert len(rounded) == len(study.trials) == 29


WORKER = """
import sys, time, optuna, lbo
sys.path.insert(0, {tests!r})
from test_sampler import Bump
optuna.logging.set_verbosity(optuna.logging.ERROR)
def objective(trial):
    time.sleep(0.02)
    return sum((trial.suggest_int(name, 0, 5) - 2) ** 2 for name in "xy")
study = optuna.load_study(study_name="s", storage={storage!r}, sampler=lbo.LBOSampler(model=Bump(), seed={seed}))
while time.time() < {start}:
    pass
study.optimize(objective, n_trials=6)
"""


def test_processes_on_one_file_do_not_ask_for_the_same_point(tmp_path, request) -> None:
    storage = f"sqlite:///{tmp_path}/s.db"
    study = optuna.create_study(study_name="s", storage=storage, sampler=lbo.LBOSampler(model=Bump(), seed=0))
    study.optimize(lambda t: sum((t.suggest_int(name, 0, 5) - 2) ** 2 for name in "xy"), n_trials=5)
    code = {"tests": str(request.path.parent), "storage": storage, "start": time.time() + 4}
    finish(*[start(WORKER.format(**code, seed=seed)) for seed in (0, 0, None, None)])
    assert len(study.trials) == 29
    assert len(set(points(study))) == 29


def running(
    params: dict[str, Any], distributions: dict[str, BaseDistribution], age: timedelta
) -> optuna.trial.FrozenTrial:
    trial = create_trial(state=TrialState.RUNNING, params=params, distributions=distributions)
    trial.datetime_start = datetime.now() - age
    return trial


def test_a_trial_that_runs_for_ever_is_not_avoided_for_ever() -> None:
    def asked_beside_a_trial_that_runs_for(age: timedelta) -> set[int]:
        study = bump_study()
        study.add_trial(create_trial(value=1.0, params={"n": 0}, distributions={"n": IntDistribution(0, 3)}))
        study.add_trial(running({"n": 1}, {"n": IntDistribution(0, 3)}, age))
        study.optimize(lambda t: t.suggest_int("n", 0, 3), n_trials=3)
        return {t.params["n"] for t in study.trials[2:]}

    assert asked_beside_a_trial_that_runs_for(timedelta(days=2)) == {1, 2, 3}
    assert asked_beside_a_trial_that_runs_for(timedelta(minutes=5)) >= {2, 3}


def test_an_enqueued_trial_that_runs_is_pending_at_its_own_point() -> None:
    for seed in range(5):
        study = study_of(lbo.LBOSampler(model=Bump(), seed=seed))
        study.optimize(lambda t: t.suggest_int("n", 0, 3), n_trials=2)
        free = sorted({0, 1, 2, 3} - {t.params["n"] for t in study.trials})
        study.enqueue_trial({"n": free[1]})
        waiting = study.ask()
        assert study.ask().suggest_int("n", 0, 3) == free[0]
        assert waiting.suggest_int("n", 0, 3) == free[1]


def test_of_two_workers_that_come_to_the_same_point_one_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def objective(trial: Trial) -> float:
        return float(trial.suggest_int("x", 0, 50) - 20) ** 2

    study = bump_study()
    study.optimize(objective, n_trials=6)
    slow, publish = study.ask(), lbo.sampler._publish
    quick = []

    def publish_late(*args: Any) -> None:
        """Between the slow worker's reading and publishing, another one reads, publishes and begins."""
        monkeypatch.undo()
        with monkeypatch.context() as unseen:
            unseen.setattr(lbo.trials, "alive", lambda trials, now: [])
            study.sampler = lbo.LBOSampler(model=Bump(), seed=1)
            quick.append(study.ask())
            objective(quick[0])
        publish(*args)

    monkeypatch.setattr(lbo.sampler, "_publish", publish_late)
    objective(slow)
    assert slow.params != quick[0].params


# Bad input


VALUES: dict[str, Callable[[int], float]] = {
    "nan": lambda n: math.nan,
    "now and then nan": lambda n: math.nan if n % 2 else float(n),
    "inf": lambda n: math.inf if n % 3 else float(n),
    "-inf": lambda n: -math.inf if n % 3 else float(n),
    "only infinities": lambda n: math.inf if n % 2 else -math.inf,
    "constant": lambda n: 3.0,
    "zero": lambda n: 0.0,
    "1e300": lambda n: 1e300 * (1 + n % 3),
    "-1.7e308 to 1.7e308": lambda n: 1.7e308 * (-1) ** n,
    "1e-300": lambda n: 1e-300 * (1 + n % 3),
    "1e300 and 1e-300": lambda n: 1e300 if n % 2 else 1e-300,
    "denormal": lambda n: 5e-324 * n,
}


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("name", VALUES)
def test_no_value_breaks_the_numerics(name: str, direction: str) -> None:
    study = study_of(lbo.LBOSampler(model=TINY, seed=0), direction=direction)

    def objective(trial: Trial) -> float:
        trial.suggest_float("x", 0, 1)
        trial.suggest_int("n", 0, 100)
        return VALUES[name](trial.number)

    study.optimize(objective, n_trials=9)
    assert len(set(points(study))) == 9


@pytest.mark.parametrize("reports", [0, 1, 3])
def test_pruned_trials_are_learned_from(reports: int) -> None:
    study = study_of(lbo.LBOSampler(model=TINY, seed=0))

    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        for step in range(reports):
            trial.report(math.nan if step == 1 else x, step)
        if trial.number % 2:
            raise optuna.TrialPruned
        trial.suggest_float("late", 0, 1)
        return x

    study.optimize(objective, n_trials=10)
    assert [t.state for t in study.trials[:2]] == [TrialState.COMPLETE, TrialState.PRUNED]


def test_a_study_in_which_everything_is_pruned_or_fails() -> None:
    for seed, outcome in enumerate([optuna.TrialPruned, ValueError] * 2):
        study = study_of(lbo.LBOSampler(model=TINY, seed=seed))

        def objective(trial: Trial, outcome: type[Exception] = outcome) -> float:
            trial.suggest_float("x", 0, 1)
            raise outcome

        study.optimize(objective, n_trials=12, catch=ValueError)
        gaps = np.diff(np.sort([0, *(t.params["x"] for t in study.trials), 1]))
        assert gaps.max() < 0.2  # it looks everywhere


def test_trials_that_break_off_between_parameters() -> None:
    study = study_of(lbo.LBOSampler(model=TINY, seed=0))

    def objective(trial: Trial) -> float:
        x = trial.suggest_categorical("x", ["a", "b"])
        if trial.number % 3 == 2:
            raise ValueError
        return trial.suggest_int("y", 0, 9) + trial.suggest_float("z", 0, 1) * (x == "a")

    study.optimize(objective, n_trials=12, catch=ValueError)
    assert len(study.trials) == 12


def test_repeated_points_with_different_values() -> None:
    study = study_of(lbo.LBOSampler(model=TINY, seed=0))
    for value in (1.0, -1.0, 5.0, 1e6, 1.0, 1.0):
        study.add_trial(create_trial(value=value, params={"x": 0.5}, distributions={"x": FloatDistribution(0, 1)}))
    study.optimize(lambda t: t.suggest_float("x", 0, 1), n_trials=3)
    assert len(set(points(study)[5:])) == 4


def test_a_space_with_one_value() -> None:
    def objective(trial: Trial) -> float:
        return (
            trial.suggest_int("n", 3, 3) + trial.suggest_float("x", 1, 1) + len(trial.suggest_categorical("c", ["a"]))
        )

    study = study_of(lbo.LBOSampler(model=TINY, seed=0))
    study.optimize(objective, n_trials=8)
    assert set(points(study)) == {(("n", 3), ("x", 1.0), ("c", "a"))}


def test_a_finite_space_runs_out_and_the_study_goes_on() -> None:
    study = study_of(lbo.LBOSampler(model=TINY, seed=0))
    study.optimize(lambda t: t.suggest_int("n", 1, 3) + t.suggest_categorical("c", [1, 2]), n_trials=9)
    assert len(set(points(study)[:6])) == 6


def test_no_parameters() -> None:
    study = study_of(lbo.LBOSampler(model=TINY, seed=0))
    study.optimize(lambda t: 1.0, n_trials=7)
    assert len(study.trials) == 7


def test_a_hundred_parameters() -> None:
    study = study_of(lbo.LBOSampler(model=TINY, seed=0))
    study.optimize(lambda t: sum(t.suggest_float(f"x{i}", 0, 1) for i in range(100)), n_trials=8)
    assert len(set(points(study))) == 8


def test_several_objectives_are_refused_with_the_cure() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=lbo.LBOSampler(seed=0))
    with pytest.raises(ValueError, match=r"2 directions.*NSGAIISampler"):
        study.optimize(lambda t: (t.suggest_float("x", 0, 1), 0.0), n_trials=1)


class Normal(BaseDistribution):
    def to_internal_repr(self, param_value_in_external_repr: Any) -> float:
        return float(param_value_in_external_repr)

    def single(self) -> bool:
        return False

    def _contains(self, param_value_in_internal_repr: float) -> bool:
        return True


def test_an_unknown_distribution_is_refused_with_the_cure() -> None:
    study = bump_study()
    with pytest.raises(SpaceError, match=r"'x' has a Normal. Use trial.suggest_float"):
        study.optimize(lambda t: t._suggest("x", Normal()), n_trials=1)
    study = bump_study()
    study.add_trial(create_trial(value=1.0, params={"x": 0.5}, distributions={"x": Normal()}))
    with pytest.raises(SpaceError, match=r"'x' has a Normal. Use trial.suggest_float"):
        study.optimize(lambda t: t.suggest_float("y", 0, 1), n_trials=1)


@pytest.mark.parametrize("how", ["raise", "nan", "prune"])
def test_failing_regions_are_steered_away_from(how: str) -> None:
    def objective(trial: Trial) -> float:
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        if x > 0.5:
            if how == "raise":
                raise ValueError
            if how == "prune":
                raise optuna.TrialPruned
            return math.nan
        return (x - 0.45) ** 2 + (y - 0.5) ** 2

    failed = []
    for seed in range(3):
        study = study_of(lbo.LBOSampler(model=Bump(), seed=seed))
        study.optimize(objective, n_trials=40, catch=ValueError)
        failed.append([t.state != TrialState.COMPLETE for t in study.trials])
    late = np.mean([f[20:] for f in failed])
    assert late < 0.25, "half of the space fails"


# Optuna's other tools


def test_fixed_parameters_stay_fixed_and_the_rest_is_optimised() -> None:
    def objective(trial: Trial) -> float:
        return (trial.suggest_float("x", 0, 1) - trial.suggest_float("y", 0, 1)) ** 2

    away = []
    for seed in range(8):
        study = bump_study(seed=seed)
        study.optimize(objective, n_trials=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.sampler = optuna.samplers.PartialFixedSampler({"y": 0.25}, study.sampler)
        study.optimize(objective, n_trials=18)
        assert {t.params["y"] for t in study.trials[2:]} == {0.25}
        away += [abs(t.params["x"] - 0.25) for t in study.trials[10:]]
    assert np.median(away) < 0.12  # of random ones, .25


def test_enqueued_trials_are_run_and_learned_from() -> None:
    study = bump_study()
    study.enqueue_trial({"x": 0.31})
    study.enqueue_trial({"y": 0.5})
    study.optimize(lambda t: (t.suggest_float("x", 0, 1) - 0.3) ** 2 + t.suggest_float("y", 0, 1), n_trials=4)
    assert study.trials[0].params["x"] == 0.31
    assert study.trials[1].params["y"] == 0.5


def test_ranges_may_move_while_a_study_runs() -> None:
    study = bump_study()
    for low, high in ((0, 10), (3, 5), (-5, 20), (100, 101)):
        study.optimize(
            lambda t, low=low, high=high: t.suggest_int("n", low, high) + t.suggest_float("x", low, high + 0.5),
            n_trials=6,
        )
        assert all(low <= t.params["n"] <= high and low <= t.params["x"] <= high + 0.5 for t in study.trials[-6:])


def test_a_pruner_with_brackets_of_its_own() -> None:
    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=4, reduction_factor=2)
    # Optuna deals trials to brackets by a hash of the study's name: with a random one they could be dealt too thinly.
    study = study_of(lbo.LBOSampler(model=Bump(), seed=0), pruner=pruner, study_name="brackets")

    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        for step in range(4):
            trial.report(x, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    study.optimize(objective, n_trials=20)
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    assert study.best_value < 0.02


# Candidates and openings


ROWS = [{"algo": "a", "x": 0.1 * (k + 1) / 0.7, "n": k} for k in range(8)] + [{"algo": "b", "n": k} for k in range(8)]


def tabular(trial: Trial) -> float:
    loss = (trial.suggest_int("n", 0, 20) - 5) ** 2
    if trial.suggest_categorical("algo", ["a", "b"]) == "a":
        loss += trial.suggest_float("x", 0.01, 2, log=True)
    return loss


def test_candidates_are_tried_exactly_and_once_each() -> None:
    study = bump_study(candidates=ROWS)
    study.optimize(tabular, n_trials=len(ROWS))
    tried = [t.params for t in study.trials]
    assert all(params in ROWS for params in tried)
    assert all(row in tried for row in ROWS)
    assert min(t.value for t in study.trials[:9]) < 1
    study.optimize(tabular, n_trials=2)  # nothing is left
    assert study.trials[-1].params in ROWS


def test_the_model_opens_the_task() -> None:
    first = {"n": 11, "algo": "b", "gone": 1}
    study = bump_study(model=Bump(first=first))
    study.optimize(tabular, n_trials=3)
    assert study.trials[1].params == {"n": 11, "algo": "b"}  # the first trial shows the space
    assert study.trials[2].params != study.trials[1].params


def test_an_opening_goes_to_the_nearest_candidate() -> None:
    study = bump_study(model=Bump(first={"n": 20, "algo": "b"}), candidates=ROWS[:12])
    study.optimize(tabular, n_trials=3)
    assert {"algo": "b", "n": 3} in [t.params for t in study.trials[:2]]
    assert all(t.params in ROWS for t in study.trials)


def test_an_opening_with_a_choice_that_is_gone() -> None:
    study = bump_study(model=Bump(first={"n": 7, "algo": "forgotten"}))
    study.optimize(tabular, n_trials=2)
    assert study.trials[1].params["n"] == 7


class OneMemory:
    """A stream that gives every study the same memory."""

    def __init__(self, memory: lbo.Memory) -> None:
        self.memory = memory

    def memory_for(self, study: optuna.Study, model: Any = None) -> lbo.Memory:
        return self.memory


def remembered(*trials: dict[str, Any], **by_name: BaseDistribution) -> OneMemory:
    space = learn_space([Shown(params, {name: by_name[name] for name in params}, True) for params in trials])
    return OneMemory(lbo.Memory(model={}, space=space))


def test_memory_knows_the_space_before_the_first_trial() -> None:
    stream = remembered({"x": 0.5, "c": "a"}, x=FloatDistribution(0, 1), c=CategoricalDistribution("ab"))
    study = bump_study(model=Bump(first={"x": 0.625, "c": "b"}), stream=stream)
    study.optimize(lambda t: t.suggest_float("x", 0, 1) + len(t.suggest_categorical("c", "abc")), n_trials=1)
    assert study.trials[0].params == {"x": 0.625, "c": "b"}


def test_a_suggestion_from_memory_that_a_new_task_does_not_allow_is_drawn_anew() -> None:
    stream = remembered({"x": 0.5, "c": "a"}, x=FloatDistribution(0, 1), c=CategoricalDistribution("ab"))
    study = bump_study(model=Bump(first={"x": 0.625, "c": "b"}), stream=stream)
    study.optimize(lambda t: t.suggest_float("x", 2, 3) + len(t.suggest_categorical("c", "cd")), n_trials=3)
    assert all(2 <= t.params["x"] <= 3 for t in study.trials)


@pytest.mark.parametrize("stranger", [0.4, 0.2])
def test_a_young_task_that_resembles_nothing_remembered_explores(monkeypatch, stranger: float) -> None:
    asked = []
    maximise = acquisition.maximise
    monkeypatch.setattr(BumpPosterior, "stranger", stranger)
    monkeypatch.setattr(acquisition, "maximise", lambda *args: asked.append(1) or maximise(*args))
    study = bump_study(model=Bump(initial=2), stream=remembered({"x": 0.5}, x=FloatDistribution(0, 1)))
    study.optimize(lambda t: t.suggest_float("x", 0, 1), n_trials=5)
    assert len(asked) == (0 if stranger > sampler.STRANGE else 3)
    study.optimize(lambda t: t.suggest_float("x", 0, 1), n_trials=1)
    assert len(asked) == (1 if stranger > sampler.STRANGE else 4)


def test_memory_of_another_type_is_refused() -> None:
    stream = remembered({"x": 0.5}, x=FloatDistribution(0, 1))
    study = bump_study(stream=stream)
    with pytest.raises(SpaceError, match="'x' was FloatDistribution"):
        study.optimize(lambda t: t.suggest_int("x", 0, 5), n_trials=2)


# It optimises


def two_branches(trial: Trial) -> float:
    """The better branch is better only near its parameter's optimum."""
    if trial.suggest_categorical("branch", ["left", "right"]) == "left":
        return 0.3 + (trial.suggest_float("a", 0, 1) - 0.2) ** 2
    b, c = trial.suggest_float("b", 0, 1), trial.suggest_float("c", 0, 1)
    return 4 * (b - 0.8) ** 2 + 4 * (c - 0.15) ** 2


@pytest.mark.parametrize("model", [Bump(), TINY], ids=["Bump", "Paper"])
def test_conditional_parameters_are_modelled_not_left_to_chance(model: Any) -> None:
    def regret(make: Callable[[int], optuna.samplers.BaseSampler]) -> float:
        values = []
        for seed in range(5):
            study = study_of(make(seed))
            study.optimize(two_branches, n_trials=25)
            values.append(study.best_value)
        return float(np.median(values))

    random = regret(lambda seed: optuna.samplers.RandomSampler(seed=seed))
    ours = regret(lambda seed: lbo.LBOSampler(model=replace(model), seed=seed))
    assert ours < random / 4


def test_it_maximises_when_told_to() -> None:
    study = study_of(lbo.LBOSampler(model=Bump(), seed=0), direction="maximize")
    study.optimize(lambda t: -((t.suggest_float("x", 0, 1) - 0.7) ** 2), n_trials=15)
    assert study.best_params["x"] == pytest.approx(0.7, abs=0.02)


# The first points


def first_points(seed: int, n: int = 3) -> np.ndarray:
    """(n, 2) what an empty memory tries first on the unit square."""
    study = optuna.create_study(sampler=lbo.LBOSampler(seed=seed))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1), n_trials=n)
    return np.array([[trial.params["x"], trial.params["y"]] for trial in study.trials])


def nearest_two(X: np.ndarray) -> float:
    """The distance of the two that are nearest to each other, the ends of each axis joined."""
    apart = np.abs(X[:, None] - X)
    distance = np.linalg.norm(np.minimum(apart, 1 - apart), axis=-1)
    return float(distance[~np.eye(len(X), dtype=bool)].min())


def near_an_edge(X: np.ndarray) -> float:
    return float(((X < 0.1) | (X > 0.9)).any(axis=-1).mean())


def test_first_points_keep_away_from_each_other_and_favour_no_edge() -> None:
    uniform = np.random.default_rng(0).random((100, 3, 2))
    spread = np.array([first_points(seed) for seed in range(100)])
    # The median of a hundred uniform draws is .25, with a standard error of .015.
    assert np.median([nearest_two(X) for X in spread]) > 1.5 * np.median([nearest_two(X) for X in uniform])
    # .36 of the square is that near an edge; the standard error is .03.
    assert abs(near_an_edge(spread) - 0.36) < 0.08
    assert np.abs(spread.mean(axis=(0, 1)) - 0.5).max() < 0.08


def test_first_points_try_every_algorithm() -> None:
    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b", "c"])
        return trial.suggest_float(f"x of {kind}", 0, 1)

    for seed in range(20):
        study = optuna.create_study(sampler=lbo.LBOSampler(seed=seed))
        study.optimize(objective, n_trials=5)
        assert {trial.params["kind"] for trial in study.trials} == {"a", "b", "c"}
