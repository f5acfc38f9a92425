"""Keep or retune: what advice says where the answer is known, and that it says it in the user's units."""

import warnings
from dataclasses import replace

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.study import StudyDirection

import lbo
from lbo import trials as trials_of
from lbo.advice import GainLeft, Known, Stopper, advise
from lbo.experiments import DataError, calibration
from lbo.experiments.problems import Function
from lbo.experiments.sequences import BraninSequence
from lbo.models import Paper, default_model, draws, families
from lbo.models.lifelong import Prior
from lbo.seeds import Seed
from past_streams import SQUARE, grid_trials, stream_of, trial


def bowl(x, y):
    return (x - 0.3) ** 2 + (y - 0.7) ** 2


def elsewhere(x, y):
    return (x - 0.9) ** 2 + (y - 0.1) ** 2


PAST = {task: [*grid_trials(bowl), trial(0.0, {"x": 0.3, "y": 0.7})] for task in ("jan", "feb", "mar")}
SOME = [{"x": x, "y": y} for x, y in ((0.3, 0.7), (0.8, 0.2), (0.1, 0.1), (0.6, 0.9), (0.5, 0.4), (0.9, 0.9))]


def some_trials(f, configurations=SOME):
    return [trial(f(**params), params) for params in configurations]


@pytest.fixture(scope="module")
def memory():
    return stream_of(PAST).memory()


def test_nothing_is_known_of_a_first_task():
    for trials in ([], [trial(1.0)], [trial(None), trial(None)]):
        given = advise("jan", Known(trials, StudyDirection.MINIMIZE, None))
        assert (given.recommendation, given.over_previous, given.left) == ("retune", None, None)
        assert "Nothing is known" in str(given)


def test_a_task_like_those_before_it_keeps_their_configuration(memory):
    given = advise("apr", Known(some_trials(bowl), StudyDirection.MINIMIZE, memory), threshold=0.05)
    assert given.recommendation == "keep"
    assert given.previous == "mar"
    assert given.configuration == {"x": 0.3, "y": 0.7}
    assert given.over_previous.probability <= 0.1
    assert "'mar'" in given.reason


def test_a_task_whose_optimum_moved_is_retuned_until_little_is_left(memory):
    few = advise("apr", Known(some_trials(elsewhere), StudyDirection.MINIMIZE, memory), threshold=0.05)
    assert few.recommendation == "retune"
    assert few.over_previous.expected > 0.3  # it is 0.72
    found = [*grid_trials(elsewhere), *some_trials(elsewhere, [{"x": 0.9, "y": 0.1}])]
    many = advise("apr", Known(found, StudyDirection.MINIMIZE, memory), threshold=0.05)
    assert many.recommendation == "stop"
    assert "Little is left" in many.reason
    assert many.left.expected < 0.02 < many.over_previous.expected
    assert many.over_previous.at_most == pytest.approx(0.72, abs=0.05)


def test_before_any_trial_memory_speaks_alone(memory):
    given = advise("apr", Known([], StudyDirection.MINIMIZE, memory))
    assert given.left is None
    assert given.trials == 0
    assert 0 < given.over_previous.expected < 2  # the bowl's range is 0.98
    assert given.threshold > 0


@pytest.mark.parametrize("n", [0, 1, 2, 6])
def test_gains_are_in_the_users_units_whichever_way_they_count(n):
    shapes = {1.0: "minimize", 1024.0: "minimize", -1.0: "maximize"}  # exact, so that rounding does not count
    expected = []
    for factor, direction in shapes.items():
        scaled = {
            task: [trial(factor * t.value, t.params) for t in trials] for task, trials in list(PAST.items())[:2]
        } | {"apr": [trial(factor * bowl(**params), params) for params in SOME[:n]]}
        given = stream_of(scaled, direction=direction).advice("apr")
        expected.append(np.array([given.threshold, given.over_previous.expected]) / abs(factor))
    np.testing.assert_allclose(expected[1], expected[0], rtol=1e-4)
    np.testing.assert_allclose(expected[2], expected[0], rtol=1e-4)


def test_a_higher_threshold_is_passed_less_often(memory):
    known = Known(some_trials(elsewhere), StudyDirection.MINIMIZE, memory)
    probabilities = [advise("apr", known, threshold=t).over_previous.probability for t in (0.0, 0.3, 1.0, 100.0)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] > probabilities[-1] == 0


def test_two_values_that_happen_to_be_close_do_not_make_the_gain_small(memory):
    alike = [trial(0.5, {"x": 0.3, "y": 0.7}), trial(0.5001, {"x": 0.8, "y": 0.2})]
    assert advise("apr", Known(alike, StudyDirection.MINIMIZE, memory)).left.at_most > 0.02


def test_memory_that_is_right_where_it_was_tried_may_be_wrong_elsewhere():
    """The more tasks were alike before, the less it is doubted."""
    space = {"kind": CategoricalDistribution(("good", "bad")), "x": FloatDistribution(0.0, 1.0)}

    def tried(kinds):
        return [
            trial((x - 0.3) ** 2 + (kind == "bad"), {"kind": kind, "x": x}, space)
            for kind in kinds
            for x in (0.1, 0.3, 0.5, 0.7, 0.9)
        ]

    doubts = []
    for n in (1, 8):
        memory = stream_of({f"{t}": tried(["good", "bad"]) for t in range(n)}).memory()
        known = Known(tried(["good"]), StudyDirection.MINIMIZE, memory)
        doubts.append(advise("apr", known, threshold=0.05).over_previous.probability)
    assert doubts[0] > 0.1 > doubts[1]


def test_candidates_are_all_there_is(memory):
    known = Known(some_trials(elsewhere, SOME[:2]), StudyDirection.MINIMIZE, memory, candidates=[SOME[0], SOME[1]])
    given = advise("apr", known)
    assert given.over_previous.expected == pytest.approx(elsewhere(0.3, 0.7) - elsewhere(0.8, 0.2), rel=0.05)
    assert given.left.expected == pytest.approx(0, abs=0.02)


def test_failed_trials_and_odd_spaces_do_not_matter(memory):
    failed = [trial(None, params) for params in SOME[:3]]
    assert advise("apr", Known(failed, StudyDirection.MINIMIZE, memory)).left is None
    other = {"x": FloatDistribution(0.0, 2.0), "new": FloatDistribution(1.0, 1.0)}
    wider = [trial(float(x), {"x": x, "new": 1.0}, other) for x in (0.1, 1.5)]
    assert advise("apr", Known(wider, StudyDirection.MINIMIZE, memory)).left.expected >= 0


# The stream's


def test_the_streams_advice_is_that_of_the_memory_before_the_task():
    stream = stream_of({**PAST, "apr": some_trials(bowl)})
    before = stream_of(PAST).memory()
    known = Known(some_trials(bowl), StudyDirection.MINIMIZE, before)
    assert stream.advice("apr", threshold=0.05) == advise("apr", known, threshold=0.05)
    assert stream.advice("jan").previous is None
    assert stream.advice("feb").previous == "jan"


def test_a_new_name_is_the_task_that_comes_next():
    stream = stream_of(PAST)
    assert stream.advice("apr").previous == "mar"
    assert stream.tasks == list(PAST)
    with pytest.raises(lbo.stream.StreamError):
        stream.advice("")


def test_advice_writes_nothing():
    stream = stream_of({**PAST, "apr": []})
    before = [(study.study_name, study.system_attrs) for study in stream.storage.get_all_studies()]
    for task in (*stream.tasks, "may"):
        stream.advice(task)
    assert [(study.study_name, study.system_attrs) for study in stream.storage.get_all_studies()] == before


def test_a_stream_of_another_model_is_advised_by_the_default():
    stream = stream_of({task: PAST[task] for task in ("jan", "feb")})
    stream.rebuild(Paper(networks=3, units=4, steps=2))
    assert stream.advice("feb") == stream_of({task: PAST[task] for task in ("jan", "feb")}).advice("feb")


# Stopping


def tune(study, n_trials, callbacks):
    study.optimize(
        lambda t: bowl(t.suggest_float("x", 0, 1), t.suggest_float("y", 0, 1)), n_trials, callbacks=callbacks
    )
    return len(study.trials)


def test_the_stopper_stops_when_little_is_left_and_not_before():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    stopped, patient = (optuna.create_study(sampler=lbo.LBOSampler(seed=0)) for _ in range(2))
    assert 5 <= tune(stopped, 25, [Stopper(0.02)]) < 25
    assert stopped.best_value < 0.05
    assert tune(patient, 12, [Stopper(1e-12)]) == 12


def test_a_stopper_in_a_stream_knows_its_memory():
    afresh, remembering = (stream_of(past).study("apr", seed=0) for past in ({}, PAST))
    assert tune(remembering, 20, [Stopper(0.05)]) < 5 <= tune(afresh, 20, [Stopper(0.05)])


def test_a_stopper_takes_any_sampler():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    assert tune(study, 40, [Stopper(0.1)]) < 40


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("nan")])
def test_a_threshold_that_nothing_reaches_is_refused(threshold):
    with pytest.raises(ValueError, match="above 0"):
        Stopper(threshold)


def test_optunas_terminator_takes_the_gain_left():
    study = stream_of(PAST).study("apr", seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna 6 takes its terminators away
        from optuna.terminator import StaticErrorEvaluator, Terminator, TerminatorCallback

        terminator = Terminator(GainLeft(study), StaticErrorEvaluator(0.05), min_n_trials=1)
        assert tune(study, 20, [TerminatorCallback(terminator)]) < 20


def test_too_few_trials_cannot_tell_what_is_left():
    study = optuna.create_study(sampler=lbo.LBOSampler(seed=0))
    study.add_trials(grid_trials(bowl)[:2])
    assert GainLeft(study).evaluate(study.trials, study.direction) == float("inf")


# Draws


@pytest.mark.parametrize(("mean", "deviation", "agrees"), [(1.6, np.sqrt(0.2), True), (1.0, np.sqrt(0.2), False)])
def test_slice_sampling_draws_from_the_posterior(mean, deviation, agrees):
    """A normal prior N(0, 1) and a normal likelihood of y = 2 with variance 1/4; the wrong mean must fail."""
    rng, prior = np.random.default_rng(0), Prior(np.zeros(1), np.ones(1))
    chain = [np.zeros(1)]
    for _ in range(4000):
        chain.append(draws._step(chain[-1], lambda x: -2.0 * float((x[0] - 2.0) ** 2), prior, rng))
    values = np.array(chain[100:])[:, 0]
    assert (abs(values.mean() - mean) < 0.06) == agrees
    assert abs(values.std() - deviation) < 0.06


def test_draws_pass_through_what_was_tried(memory):
    done = some_trials(bowl)
    task = trials_of.as_task(trials_of.space_of(done, memory.space), done, StudyDirection.MINIMIZE)
    posterior = default_model().fit(task, memory, Seed(0), None)
    f = draws.functions(task, memory, posterior, task.X, np.random.default_rng(0), 400)
    np.testing.assert_allclose(f.mean(axis=0), task.y, atol=0.05)
    far = task.space.encode(np.array([[0.02, 0.98]]))
    assert draws.functions(task, memory, posterior, far, np.random.default_rng(0), 400).std() > 2 * f.std(axis=0).max()


def test_before_any_trial_draws_have_no_offset(memory):
    task = trials_of.as_task(memory.space, [], StudyDirection.MINIMIZE)
    posterior = default_model().fit(task, memory, Seed(0), None)
    X = memory.space.encode(np.array([[0.5, 0.5]]))
    low, high = np.quantile(draws.functions(task, memory, posterior, X, np.random.default_rng(0), 1000), [0.16, 0.84])
    assert (high - low) / 2 < 1.6 * families.recall(memory.space, memory).width


# Calibration


CLAIM = calibration.Claim("survival-heart-2", 0, "t", 5, "keep", "keep", 0.1, 0.05, 0.95, 0.09, 0.02)


def test_calibration_counts_what_came_true():
    found = [CLAIM, CLAIM, replace(CLAIM, loss=0.5), replace(CLAIM, probability=0.2, recommendation="retune", loss=1.0)]
    assert calibration.bins(found) == [(0.2, 0.0, 1), (pytest.approx(0.95), pytest.approx(2 / 3), 3)]
    text = calibration.summary([*found, replace(CLAIM, sequence="branin-1")])
    assert text.startswith("5 claims in 2 streams of 2 sequences:\n")
    assert "* held-out cohorts: advice said keep 3 times, and 67% of them lost no more than stated (90% claimed" in text
    assert "| heart | 3 | 67% | 0 | - |" in text
    assert "| branin-1 | 1 | 100% | 0 | - |" in text
    assert "| held-out cohorts | keep | 5 | 3 | 67% |" in text
    assert "| held-out cohorts | keep | 4 | 50% |" in text
    assert "| made sequences | keep | 95% | 100% | 1 |" in text
    assert calibration.bins([replace(CLAIM, probability=1.0)]) == [(1.0, 1.0, 1)]


def test_a_killed_calibration_goes_on_where_it_stopped(tmp_path, monkeypatch):
    def killed_at(*killers):
        def claims(sequence, repetition, seed, after):
            if (sequence.name, repetition) in killers:
                raise KeyboardInterrupt
            made.append((sequence.name, repetition))
            yield replace(CLAIM, sequence=sequence.name, repetition=repetition, loss=1 / 3)

        return claims

    def run(repeats):
        calibration.main(chosen="", repeats=repeats, out=tmp_path, png=False)

    made = []
    monkeypatch.setattr(calibration, "_made", lambda quick: [BraninSequence(0.1), BraninSequence(1)])
    monkeypatch.setattr(calibration, "claims", killed_at(("branin-0.1", 1)))
    with pytest.raises(KeyboardInterrupt):
        run(repeats=2)
    assert made == [("branin-0.1", 0), ("branin-1", 0)]
    monkeypatch.setattr(calibration, "claims", killed_at())
    run(repeats=2)
    assert made[2:] == [("branin-0.1", 1), ("branin-1", 1)]
    assert calibration._read_claims(tmp_path / "claims.csv") == [
        replace(CLAIM, sequence=name, repetition=repetition, loss=1 / 3) for name, repetition in made
    ]
    monkeypatch.setattr(calibration, "_code", lambda: "other code, other claims")
    run(repeats=1)
    assert made[4:] == [("branin-0.1", 0), ("branin-1", 0)]


def test_calibration_says_which_cohorts_there_are(tmp_path):
    with pytest.raises(DataError, match=r"A cohort is one of .*rotterdam.*, but hart was asked for"):
        calibration.main(chosen="hart", out=tmp_path)
    with pytest.raises(DataError, match="neither"):
        calibration.main(chosen="", made=False, out=tmp_path)


class HighBowls:
    """Two tasks whose least value is 100."""

    name = "high-bowls"

    def tasks(self, seed):
        high = lambda X: 100 + bowl(X[:, 0], X[:, 1])  # noqa: E731
        return [Function(f"{self.name}/{t}", high, SQUARE, minimum=100.0, std=0.2) for t in range(2)]


def test_a_claim_is_held_against_the_truth(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = list(calibration.claims(HighBowls(), 0, 0, after=(0, 2)))
    assert [(claim.about, claim.trials) for claim in found] == [("keep", 0), ("keep", 2), ("stop", 2)]
    assert 1 > found[0].loss == found[1].loss >= found[2].loss >= 0
    calibration.write(found, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"claims.csv", "calibration.md", "figures"}
    assert (tmp_path / "figures" / "calibration.html").is_file()
