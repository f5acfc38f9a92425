"""Optuna's trials as arrays: what a value, a failure, a pruned or a running trial counts as."""

import math
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from lbo import trials
from lbo.space import Condition

MIN, MAX = StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE
NOW = datetime(2026, 5, 1, 12)


def complete(value: float) -> FrozenTrial:
    trial = create_trial(value=0.0)
    trial.values = [value]
    return trial


def pruned(*reports: float) -> FrozenTrial:
    return create_trial(state=TrialState.PRUNED, intermediate_values=dict(enumerate(reports)))


def failed() -> FrozenTrial:
    return create_trial(state=TrialState.FAIL)


def test_a_dead_trial_that_is_run_again_is_not_learned_from() -> None:
    x = FloatDistribution(0, 1)
    dead = create_trial(state=TrialState.FAIL, params={"x": 0.5}, distributions={"x": x})
    broken = create_trial(state=TrialState.FAIL, params={"x": 0.7}, distributions={"x": x})
    rerun = create_trial(value=1.0, params={"x": 0.5}, distributions={"x": x}, system_attrs={"retry_history": [0]})
    dead.number, broken.number, rerun.number = 0, 1, 2
    assert trials.finished([dead, broken, rerun]) == [broken, rerun]


def test_values_are_minimised_and_failures_are_nan() -> None:
    some = [complete(1.0), failed(), complete(-2.0)]
    np.testing.assert_array_equal(trials.values(some, MIN), [1, np.nan, -2])
    np.testing.assert_array_equal(trials.values(some, MAX), [-1, np.nan, 2])
    assert trials.values([], MIN).shape == (0,)


def test_an_infinitely_bad_value_is_a_failure_and_an_infinitely_good_one_is_the_best_seen() -> None:
    some = [complete(1.0), complete(math.inf), complete(3.0), complete(-math.inf)]
    np.testing.assert_array_equal(trials.values(some, MIN), [1, np.nan, 3, 1])
    np.testing.assert_array_equal(trials.values(some, MAX), [-1, -3, -3, np.nan])
    assert np.isnan(trials.values([complete(math.inf), complete(-math.inf)], MIN)).all()


def test_a_pruned_trial_counts_as_its_last_report_but_not_as_better_than_the_median() -> None:
    some = [complete(1.0), complete(2.0), complete(3.0), pruned(9, 5), pruned(9, 0), pruned(), pruned(1, math.nan)]
    np.testing.assert_array_equal(trials.values(some, MIN), [1, 2, 3, 5, 2, np.nan, np.nan])
    np.testing.assert_array_equal(trials.values([pruned(4, 1)], MIN), [1])


def test_the_median_of_the_largest_doubles_is_finite() -> None:
    some = [complete(1.7e308), complete(1.6e308), pruned(0.0)]
    assert np.isfinite(trials.values(some, MIN)).all()


def running(age: timedelta) -> FrozenTrial:
    trial = create_trial(state=TrialState.RUNNING)
    trial.datetime_start = NOW - age
    return trial


def lasting(duration: timedelta) -> FrozenTrial:
    trial = create_trial(value=1.0)
    trial.datetime_start, trial.datetime_complete = NOW - duration, NOW
    return trial


def test_running_trials_are_alive_for_an_hour_or_ten_times_the_longest() -> None:
    young, old = running(timedelta(minutes=59)), running(timedelta(minutes=61))
    assert trials.alive([young, old, failed()], NOW) == [young]
    assert trials.alive([young, old, lasting(timedelta(minutes=7))], NOW) == [young, old]
    assert trials.alive([failed()], NOW) == []
    old.datetime_start = None
    assert trials.alive([old], NOW) == [old]


BRANCHES = {"algo": CategoricalDistribution(["p", "q"]), "x": FloatDistribution(0, 1)}


def asked(state: TrialState, **params: Any) -> FrozenTrial:
    return create_trial(
        state=state,
        value=1.0 if state == TrialState.COMPLETE else None,
        params=params,
        distributions={name: BRANCHES[name] for name in params},
    )


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.PRUNED, TrialState.RUNNING])
def test_a_trial_that_may_have_broken_off_says_nothing_about_what_it_lacks(state: TrialState) -> None:
    whole = [asked(TrialState.COMPLETE, algo="p", x=0.5), asked(TrialState.COMPLETE, algo="q")]
    rule = {"x": Condition("algo", ("p",))}
    assert dict(trials.space_of([*whole, asked(state, algo="p")], None).conditions) == rule
    assert dict(trials.space_of([*whole, asked(TrialState.COMPLETE, algo="p")], None).conditions) == {}


def test_the_search_space_is_the_latest_word() -> None:
    space = trials.space_of(
        [asked(TrialState.COMPLETE, x=0.5)], None, {"x": FloatDistribution(0, 2), "y": BRANCHES["x"]}
    )
    assert space.names == ("x", "y")
    assert space.axes[0].latest == FloatDistribution(0, 2)


def test_the_latest_distributions_are_in_order_of_their_names() -> None:
    later = asked(TrialState.COMPLETE, algo="q")
    latest = trials.latest_distributions([asked(TrialState.COMPLETE, x=0.1), later])
    assert list(latest) == ["algo", "x"]
    assert latest["algo"] is later.distributions["algo"]


def test_only_trials_that_are_over_and_have_parameters_are_learned_from() -> None:
    some = [asked(state, algo="p") for state in (TrialState.RUNNING, TrialState.FAIL, TrialState.COMPLETE)]
    assert trials.finished([*some, complete(1.0)]) == some[1:]


def test_the_digest_tells_every_difference_but_not_the_order() -> None:
    one = asked(TrialState.COMPLETE, algo="p", x=0.5)
    other = asked(TrialState.COMPLETE, algo="p", x=0.25)
    other.number = 1
    assert trials.digest([one, other]) == trials.digest([other, one])
    changed = asked(TrialState.COMPLETE, algo="p", x=0.5)
    changed.values = [2.0]
    assert len({trials.digest(some) for some in ([one], [other], [changed], [one, other], [])}) == 5
