"""Ready search spaces: the paper's nine dimensions, and one set of Optuna names for several algorithms."""

import sys

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, MultinomialNB

from lbo import spaces
from lbo.errors import MissingExtra, SpaceError


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    return X, (X[:, 0] + rng.normal(size=80) > 0).astype(int)


def random_trials(n):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    return [study.ask() for _ in range(n)]


def test_the_paper_has_nine_dimensions():
    _, algorithms = spaces.paper()
    assert len(spaces.flatten(algorithms).distributions) == 9


def test_the_ranges_are_the_papers():
    distributions = spaces.flatten(spaces.paper()[1]).distributions
    assert distributions["XGBClassifier__n_estimators"] == IntDistribution(10, 500)
    assert distributions["XGBClassifier__max_depth"] == IntDistribution(1, 10)
    assert distributions["XGBClassifier__learning_rate"] == FloatDistribution(0.005, 0.5)
    assert distributions["LogisticRegression__C"] == FloatDistribution(0.001, 10)
    assert distributions["LogisticRegression__tol"] == FloatDistribution(0.005, 0.5)
    assert len(distributions["LogisticRegression__solver"].choices) == 5
    assert distributions["BernoulliNB__alpha"] == FloatDistribution(0.005, 5)
    assert distributions["MultinomialNB__alpha"] == FloatDistribution(0.005, 5)


@pytest.mark.parametrize("space", [spaces.paper, spaces.rich])
def test_every_algorithm_can_be_fitted_on_negative_features(space, data):
    pipeline, algorithms = space()
    flat = spaces.flatten(algorithms)
    seen = set()
    for trial in random_trials(30):
        params = flat(trial)
        if trial.params["model"] not in seen:
            fitted = clone(pipeline).set_params(**params).fit(*data)
            assert np.isfinite(fitted.predict_proba(data[0] * 3)).all()
            seen.add(trial.params["model"])
    assert seen == set(flat.branches)


def test_a_trial_is_asked_only_for_the_parameters_of_what_it_chose():
    flat = spaces.flatten(spaces.paper()[1])
    for trial in random_trials(20):
        params = flat(trial)
        chosen = trial.params["model"]
        assert type(params["model"]).__name__ == chosen
        assert set(trial.params) == {"model", *flat.branches[chosen].distributions}
        assert set(params) == {"model", *flat.branches[chosen].keys.values()}


def test_two_alphas_stay_two_parameters():
    ranges = [FloatDistribution(0.1, 1), FloatDistribution(2, 3)]
    flat = spaces.flatten(
        [
            {"model": [BernoulliNB()], "model__alpha": ranges[0]},
            {"model": [MultinomialNB()], "model__alpha": ranges[1]},
        ]
    )
    assert flat.distributions["BernoulliNB__alpha"] == ranges[0]
    assert flat.distributions["MultinomialNB__alpha"] == ranges[1]
    fixed = optuna.trial.FixedTrial({"model": "MultinomialNB", "MultinomialNB__alpha": 2.5})
    assert flat(fixed)["model__alpha"] == 2.5


def test_one_class_twice_gets_two_names():
    weak, strong = FloatDistribution(1, 10), FloatDistribution(0.1, 1)
    flat = spaces.flatten(
        [
            {"model": [LogisticRegression()], "model__C": weak},
            {"model": [LogisticRegression(l1_ratio=1.0, solver="saga")], "model__C": strong},
        ]
    )
    assert flat.distributions["model"] == CategoricalDistribution(("LogisticRegression", "LogisticRegression2"))
    assert flat.distributions["LogisticRegression2__C"] == strong


def test_setting_one_trials_parameters_leaves_the_next_trials_estimator_alone():
    pipeline, algorithms = spaces.paper()
    flat = spaces.flatten(algorithms)
    choice = {"model": "BernoulliNB", "BernoulliNB__alpha": 0.125}
    clone(pipeline).set_params(**flat.to_pipeline(choice))
    assert flat.branches["BernoulliNB"].fixed["model"].alpha == BernoulliNB().alpha


def test_a_parameter_of_another_step_and_a_list_of_values_are_taken():
    flat = spaces.flatten([{"model": [BernoulliNB()], "scaler__clip": [True, False]}])
    assert flat.distributions["BernoulliNB__scaler__clip"] == CategoricalDistribution((True, False))
    assert flat.branches["BernoulliNB"].keys == {"BernoulliNB__scaler__clip": "scaler__clip"}


@pytest.mark.parametrize(
    ("space", "complaint"),
    [
        ([], "list of such dicts"),
        ("C", "list of such dicts"),
        ([{"model": [BernoulliNB()], "model__alpha": 3}], "model__alpha"),
        ({"alpha": []}, "not empty"),
        ({"solver": "lbfgs"}, "'solver'"),
    ],
)
def test_a_space_that_cannot_be_flattened_is_refused(space, complaint):
    with pytest.raises(SpaceError, match=complaint):
        spaces.flatten(space)


def test_a_dict_keeps_its_names_and_does_not_choose():
    flat = spaces.flatten({"C": FloatDistribution(0.1, 1), "solver": ["lbfgs", "saga"], "max_iter": [500]})
    assert flat.step == ""
    assert list(flat.distributions) == ["C", "solver"]
    assert flat.to_pipeline({"C": 0.5, "solver": "saga"}) == {"C": 0.5, "solver": "saga", "max_iter": 500}


def test_dicts_are_told_apart_by_the_setting_that_they_share():
    flat = spaces.flatten(
        [
            {"C": FloatDistribution(1, 2), "kernel": ["linear"]},
            {"kernel": ["rbf"], "C": FloatDistribution(1, 9), "gamma": FloatDistribution(0.1, 1)},
        ]
    )
    assert list(flat.distributions) == ["kernel", "linear__C", "rbf__C", "rbf__gamma"]
    chosen = {"kernel": "rbf", "rbf__C": 3.0, "rbf__gamma": 0.5}
    assert flat.to_pipeline(chosen) == {"kernel": "rbf", "C": 3.0, "gamma": 0.5}


def test_dicts_that_share_no_setting_are_numbered():
    flat = spaces.flatten([{"C": FloatDistribution(1, 2)}, {"gamma": FloatDistribution(0.1, 1)}])
    assert list(flat.distributions) == ["branch", "1__C", "2__gamma"]
    assert flat.to_pipeline({"branch": "2", "2__gamma": 0.5}) == {"gamma": 0.5}


@pytest.mark.parametrize(
    ("space", "size"),
    [
        ({"a": [1, 2, 3], "b": IntDistribution(1, 9, step=2)}, 15),
        ([{"k": ["x"], "a": [1, 2]}, {"k": ["y"]}], 3),
        ({"a": ["fixed"]}, 1),
        ({}, 1),
        ({"a": [1, 2], "b": FloatDistribution(0, 1)}, np.inf),
    ],
)
def test_a_space_knows_how_many_configurations_it_has(space, size):
    assert spaces.flatten(space).size == size


def test_a_missing_package_is_named_with_its_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtra, match=r"pip install 'lbo\[sklearn,xgboost\]'"):
        spaces.paper()
    names = spaces.flatten(spaces.rich()[1]).branches
    assert "XGBClassifier" not in names
    assert "RandomForestClassifier" in names
    monkeypatch.setitem(sys.modules, "sklearn.pipeline", None)
    with pytest.raises(MissingExtra, match="scikit-learn"):
        spaces.rich()
