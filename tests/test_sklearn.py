"""LifelongSearchCV: scikit-learn's behaviour, and a memory that outlives the process."""

import io
import json
import logging
import os
import pickle
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import distributed
import numpy as np
import optuna
import pandas as pd
import pytest
import sklearn
from joblib import parallel_config
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState
from scipy.stats import loguniform
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, RandomizedSearchCV
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import lbo
from lbo.errors import StreamError
from lbo.models import Paper
from lbo.sklearn import LifelongSearchCV

CHEAP = Paper(networks=2, units=5, steps=2)
C = {"C": FloatDistribution(0.01, 10, log=True)}
GRID = {"C": [0.01, 0.1, 1.0], "class_weight": [None, "balanced"]}


@pytest.fixture(scope="module")
def data():
    return make_classification(120, n_features=5, random_state=0)


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def url(ram):
    return f"sqlite:///{ram}/lbo.db"


def search(estimator=None, space=C, **settings):
    settings = {"storage": InMemoryStorage(), "n_iter": 3, "cv": 3, "random_state": 0, "model": CHEAP, **settings}
    return LifelongSearchCV(LogisticRegression() if estimator is None else estimator, space, **settings)


def states(study):
    return [trial.state.name for trial in study.trials]


# As scikit-learn

CHECKED = [
    (Ridge(), {"alpha": [0.1, 1.0]}),
    (LogisticRegression(), {"C": [0.1, 1.0]}),
    (Pipeline([("pca", PCA()), ("ridge", Ridge())]), {"ridge__alpha": [0.1, 1.0]}),
]
# Which RandomizedSearchCV does not pass either: the last test of this section.
NOT_PASSED = {"check_supervised_y_2d"}


def checks(make):
    for estimator, space in CHECKED:
        yield from estimator_checks_generator(make(estimator, space), mark=None)


def name_of(check):
    return check.func.__name__


ALL = [*checks(lambda estimator, space: search(estimator, space, cv=2, error_score="raise"))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [pair for pair in ALL if name_of(pair[1]) not in NOT_PASSED],
    ids=lambda value: name_of(value) if hasattr(value, "func") else type(value.estimator).__name__,
)
def test_scikit_learns_own_checks(estimator, check, url):
    if name_of(check) == "check_estimators_overwrite_params":
        estimator = clone(estimator).set_params(storage=url)  # a storage in memory changes by being written to
    check(estimator)


@pytest.mark.filterwarnings("ignore")
def test_the_checks_left_out_are_not_for_randomized_search_either():
    theirs = checks(lambda e, space: RandomizedSearchCV(e, space, n_iter=2, cv=2, error_score="raise", random_state=0))
    failed = set()
    for estimator, check in theirs:
        if name_of(check) in NOT_PASSED:
            try:
                check(estimator)
            except Exception:
                failed.add(name_of(check))
    assert failed == NOT_PASSED


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"return_train_score": True},
        {"scoring": ["roc_auc", "accuracy"], "refit": "accuracy", "return_train_score": True},
        {"scoring": "roc_auc", "refit": False},
        {"refit": lambda results: int(np.argmin(results["mean_test_score"]))},
        {"scoring": lambda estimator, X, y: {"a": estimator.score(X, y), "b": 0.5}, "refit": "a"},
    ],
)
def test_a_whole_grid_gives_what_grid_search_gives(data, settings):
    ours = search(space=GRID, n_iter=50, **settings).fit(*data)
    theirs = GridSearchCV(LogisticRegression(), GRID, cv=3, **settings).fit(*data)
    assert_same_results(ours.cv_results_, theirs.cv_results_)
    assert getattr(ours, "best_score_", None) == getattr(theirs, "best_score_", None)
    assert hasattr(ours, "best_estimator_") == hasattr(theirs, "best_estimator_")


def assert_same_results(ours, theirs):
    assert ours.keys() == theirs.keys()
    order = [ours["params"].index(params) for params in theirs["params"]]
    assert len(order) == len(ours["params"])
    for key in ours.keys() - {"params"}:
        if "_time" not in key:
            assert list(ours[key][order]) == list(theirs[key]), key


@pytest.mark.parametrize(("refit", "sought"), [("acc", "acc"), (False, "neg"), (lambda results: 0, "neg")])
def test_of_several_metrics_the_named_one_is_sought_or_else_the_first(data, refit, sought):
    fitted = search(scoring={"neg": "neg_log_loss", "acc": "accuracy"}, refit=refit).fit(*data)
    assert [trial.value for trial in fitted.study_.trials] == list(fitted.cv_results_[f"mean_test_{sought}"])


class Recorder(ClassifierMixin, BaseEstimator):
    """Keeps what `fit` was given."""

    def __init__(self, a=0):
        self.a = a

    def fit(self, X, y, sample_weight=None, extra=None):
        self.classes_ = np.unique(y)
        self.n_, self.weights_, self.extra_ = len(X), sample_weight, extra
        assert sample_weight is None or len(sample_weight) == len(X)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def test_sample_weights_and_fit_parameters_arrive(data):
    weights = np.arange(len(data[1]))
    fitted = search(Recorder(), {"a": [1, 2]}).fit(*data, sample_weight=weights, extra="yes")
    assert list(fitted.best_estimator_.weights_) == list(weights)
    assert fitted.best_estimator_.extra_ == "yes"


def test_groups_arrive_at_the_splitter(data):
    groups = np.repeat(range(6), 20)
    ours = search(space=GRID, cv=GroupKFold(3), n_iter=9).fit(*data, groups=groups)
    theirs = GridSearchCV(LogisticRegression(), GRID, cv=GroupKFold(3)).fit(*data, groups=groups)
    assert_same_results(ours.cv_results_, theirs.cv_results_)


def test_groups_arrive_through_metadata_routing_too(data):
    with sklearn.config_context(enable_metadata_routing=True):
        fitted = search(cv=GroupKFold(3), n_iter=1).fit(*data, groups=np.repeat(range(6), 20))
    assert fitted.n_splits_ == 3


def test_a_splitter_that_shuffles_gives_every_configuration_the_same_folds(data):
    indifferent = {"random_state": [1, 2, 3]}  # which lbfgs does not use
    fitted = search(space=indifferent, cv=KFold(4, shuffle=True)).fit(*data)
    assert len(fitted.cv_results_["params"]) == 3
    assert np.ptp(fitted.cv_results_["split0_test_score"]) == 0


def test_an_empty_cross_validation_is_scikit_learns_error(data):
    with pytest.raises(ValueError, match="No fits were performed"):
        search(cv=iter(())).fit(*data)


def test_a_fitted_search_predicts_pickles_and_clones(data, url):
    fitted = search(storage=url).fit(*data)
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict(data[0]) == fitted.predict(data[0])).all()
    assert again.study_.best_value == fitted.best_score_
    assert clone(fitted).get_params()["storage"] == url
    assert not hasattr(clone(fitted), "task_")


def test_verbose_shows_a_bar_and_not_a_line_per_configuration(data, capsys):
    fitted = search(verbose=1, stream="[red]").fit(*data)
    shown = capsys.readouterr()
    assert "Fitting" not in shown.out
    assert f"best {fitted.best_score_:.4f}" in shown.err
    assert "[red]/1" in shown.err
    assert "3/3" in shown.err
    assert fitted.verbose == 1
    search().fit(*data)
    assert capsys.readouterr() == ("", "")


def test_the_same_seed_gives_the_same_search(data):
    first, second, other = (search(random_state=seed, n_iter=7).fit(*data).cv_results_["params"] for seed in (5, 5, 6))
    assert first == second != other
    drawn = [search(random_state=np.random.RandomState(5)).fit(*data).cv_results_["params"] for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_more_jobs_than_folds_try_several_configurations_at_once(data):
    running = []
    fitted = search(n_iter=4, n_jobs=5, callbacks=[lambda study, trial: running.append(states(study).count("RUNNING"))])
    with parallel_config("threading"):
        fitted.fit(*data)
    assert running == [1, 0, 1, 0]
    assert len(fitted.cv_results_["params"]) == 4


def test_what_only_this_process_can_hold_stays_in_it(data):
    """scikit-learn 1.9 sends the search along with every fold."""
    lock, sent = threading.Lock(), []
    running = search(n_iter=1, callbacks=[lambda study, trial: lock.locked() or sent.append(pickle.dumps(running))])
    running.fit(*data)
    arrived = pickle.loads(sent[0])
    assert vars(arrived).keys().isdisjoint({"callbacks", "cv", "storage"})
    assert vars(pickle.loads(pickle.dumps(arrived))).keys() == vars(arrived).keys()  # Dask sends it on
    assert running.cv == 3


def test_a_fitted_search_does_not_grow_with_the_data(data):
    X, y = np.tile(data[0], (100, 1)), np.tile(data[1], 100)
    sizes = [len(pickle.dumps(search(n_iter=1).fit(*rows))) for rows in (data, (X, y))]
    assert sizes[1] < sizes[0] + 1000


def test_callbacks_see_every_trial_and_may_stop(data):
    seen = []

    def stop_at_two(study, trial):
        seen.append(trial.value)
        if len(seen) == 2:
            study.stop()

    fitted = search(n_iter=9, callbacks=[stop_at_two]).fit(*data)
    assert seen == list(fitted.cv_results_["mean_test_score"])
    assert len(seen) == 2


# Spaces


def test_several_algorithms_in_scikit_learns_idiom(data, url):
    pipeline = Pipeline([("scaler", StandardScaler()), ("model", LogisticRegression())])
    space = [
        {"model": [LogisticRegression()], "model__C": loguniform(0.1, 10), "scaler": ["passthrough", StandardScaler()]},
        {"model": [BernoulliNB()], "model__alpha": IntDistribution(1, 5)},
        {"model": [GaussianNB()]},
    ]
    fitted = search(pipeline, space, n_iter=12, storage=url).fit(*data)
    models = {type(params["model"]).__name__ for params in fitted.cv_results_["params"]}
    assert models == {"LogisticRegression", "BernoulliNB", "GaussianNB"}
    masked = fitted.cv_results_["param_model__alpha"]
    assert [type(p["model"]).__name__ != "BernoulliNB" for p in fitted.cv_results_["params"]] == list(masked.mask)
    for trial, params in zip(fitted.study_.trials, fitted.cv_results_["params"], strict=True):
        assert trial.params["model"] == type(params["model"]).__name__
        json.dumps(trial.params)
    assert fitted.best_estimator_.get_params()["model"].get_params() == clone(
        fitted.best_params_["model"]
    ).set_params(**{
        key.removeprefix("model__"): value for key, value in fitted.best_params_.items() if key.startswith("model__")
    }).get_params()  # fmt: skip


@pytest.mark.parametrize("space", [{}, {"C": [0.5]}])
def test_a_space_of_one_configuration_is_one_trial(data, space):
    fitted = search(space=space).fit(*data)
    assert fitted.best_params_ == ({} if not space else {"C": 0.5})
    assert len(fitted.study_.trials) == 1


# Failures


class Fragile(LogisticRegression):
    """Fails where it is told to, quoting its data as careless code does."""

    def __init__(self, C=1.0, fails="never"):
        super().__init__(C=C)
        self.fails = fails

    def fit(self, X, y):
        if self.fails == "always" or (self.fails == "sometimes" and X[0, 0] < 0.4):  # one fold of three
            raise RuntimeError(f"cannot fit a row {X[0].tolist()}")
        return super().fit(X, y)


@pytest.mark.parametrize("error_score", [np.nan, 0.0])
def test_a_failed_fit_is_a_failed_trial_and_the_search_goes_on(data, error_score):
    space = {"fails": ["never", "sometimes", "always"]}
    theirs = GridSearchCV(Fragile(), space, cv=3, error_score=error_score)
    with pytest.warns((FitFailedWarning, UserWarning)):
        ours = search(Fragile(), space, error_score=error_score).fit(*data)
    with pytest.warns((FitFailedWarning, UserWarning)):
        theirs.fit(*data)
    told = {trial.params["fails"]: trial.state.name for trial in ours.study_.trials}
    assert told == {"never": "COMPLETE", "sometimes": "FAIL", "always": "FAIL"}
    order = [ours.cv_results_["params"].index(params) for params in theirs.cv_results_["params"]]
    for key in ("mean_test_score", "split0_test_score", "rank_test_score"):
        np.testing.assert_array_equal(ours.cv_results_[key][order], theirs.cv_results_[key])
    assert ours.best_params_ == {"fails": "never"}


def test_when_everything_fails_so_does_the_search(data):
    broken = search(Fragile(fails="always"), C)
    with pytest.warns(FitFailedWarning), pytest.raises(ValueError, match="All the 3 fits failed"):
        broken.fit(*data)
    assert states(broken.study_) == ["FAIL"] * 3


def test_an_error_that_is_to_be_raised_is_raised_and_told(data):
    raising = search(Fragile(fails="always"), C, error_score="raise")
    with pytest.raises(RuntimeError, match="cannot fit"):
        raising.fit(*data)
    assert states(raising.study_) == ["FAIL"]


# Tasks


def test_a_search_without_a_task_name_is_the_next_of_its_stream(data, url):
    named = ["first", None, "4", None]
    tasks = [search(storage=url, task=task, n_iter=1).fit(*data).task_ for task in named]
    assert tasks == ["first", "2", "4", "5"]
    lbo.Stream("default", url).forget("first")
    assert search(storage=url, n_iter=1).fit(*data).task_ == "6"
    assert lbo.Stream("default", url).tasks == ["2", "4", "5", "6"]


def test_a_task_is_continued_up_to_its_trials(data, url):
    short = search(storage=url, task="t", n_iter=3, return_train_score=True).fit(*data)
    long = search(storage=url, task="t", n_iter=8, return_train_score=True).fit(*data)
    whole = search(task="t", n_iter=8, return_train_score=True).fit(*data)
    assert len(long.study_.trials) == 8
    assert_same_results(long.cv_results_, whole.cv_results_)
    assert list(long.cv_results_["mean_fit_time"][:3]) == list(short.cv_results_["mean_fit_time"])
    assert (long.cv_results_["mean_fit_time"] > 0).all()
    assert list(long.cv_results_["std_score_time"][:3]) == list(short.cv_results_["std_score_time"])


def test_a_task_that_has_its_trials_is_only_refitted(data, url):
    first = search(storage=url, task="t").fit(*data)
    again = search(storage=url, task="t", n_iter=2).fit(*data)
    assert len(again.study_.trials) == 3
    assert again.best_params_ == first.best_params_
    assert_same_results(again.cv_results_, first.cv_results_)
    assert (again.predict(data[0]) == first.predict(data[0])).all()


def test_an_interrupted_search_loses_nothing(data, url):
    def interrupt(study, trial):
        if trial.number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(storage=url, task="t", n_iter=7, callbacks=[interrupt]).fit(*data)
    assert len(lbo.Stream("default", url).study("t").trials) == 2
    continued = search(storage=url, task="t", n_iter=7).fit(*data)
    assert continued.cv_results_["params"] == search(task="t", n_iter=7).fit(*data).cv_results_["params"]


class Interrupted(LogisticRegression):
    def fit(self, X, y):
        raise KeyboardInterrupt


def test_what_was_running_when_a_search_was_interrupted_does_not_count(data, url):
    with pytest.raises(KeyboardInterrupt):
        search(Interrupted(), storage=url, task="t").fit(*data)
    fitted = search(storage=url, task="t").fit(*data)
    assert states(fitted.study_) == ["RUNNING", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert len(fitted.cv_results_["params"]) == 3


@pytest.mark.parametrize(
    ("changed", "settings", "complaint"),
    [
        (lambda X, y: (X[:-1], y[:-1]), {}, "'rows': 120.*'rows': 119"),
        (lambda X, y: (X, y), {"cv": 4}, "'folds': 3.*'folds': 4"),
        (lambda X, y: (X, y), {"scoring": "roc_auc"}, "'scoring': 'None'.*'scoring': 'roc_auc'"),
        (lambda X, y: (X, y), {"space": {"C": [1.0, 2.0, 3.0]}}, "keeps its choices"),
    ],
    ids=["data", "folds", "scoring", "choices"],
)
def test_a_task_is_not_continued_as_another(data, url, changed, settings, complaint):
    space = {"C": [1.0, 2.0]}
    search(space=space, storage=url, task="t").fit(*data)
    with pytest.raises(StreamError, match=complaint):
        search(**{"space": space, "storage": url, "task": "t", **settings}).fit(*changed(*data))


def test_trials_of_plain_optuna_count_but_have_no_folds_to_show(data):
    storage = InMemoryStorage()
    study = lbo.Stream("default", storage).study("t", direction="maximize")
    for value in (0.2, 0.9):
        study.add_trial(optuna.trial.create_trial(params={"C": value}, distributions=C, value=value))
    assert len(search(storage=storage, task="t", n_iter=5).fit(*data).cv_results_["params"]) == 3
    study = lbo.Stream("default", storage).study("u", direction="maximize")
    study.add_trial(optuna.trial.create_trial(params={"C": 0.9}, distributions=C, value=0.9))
    assert search(storage=storage, task="u", n_iter=1).fit(*data).cv_results_["params"] == [{"C": 0.9}]
    with pytest.raises(StreamError, match="none of them in this search space"):
        search(space={"l1_ratio": [0.0, 0.5]}, storage=storage, task="u", n_iter=1).fit(*data)


MONTH = """
import sys, warnings
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
import lbo, optuna
from lbo.models import Paper
from lbo.sklearn import LifelongSearchCV
from optuna.distributions import FloatDistribution

optuna.logging.set_verbosity(optuna.logging.WARNING)
url, task, n_iter = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = Paper(networks=2, units=5, steps=2)
search = LifelongSearchCV(LogisticRegression(), {"C": FloatDistribution(0.01, 10, log=True)}, stream="churn", task=task,
                          storage=url, n_iter=n_iter, cv=3, random_state=0, model=model)
search.fit(*make_classification(120, n_features=5, random_state=0))
known = lbo.Stream("churn", url).memory_for(search.study_)
print("knows", known.tasks if known else [], "has", len(search.cv_results_["params"]))
"""


def month(url, task, n_iter=4):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", MONTH, url, task, str(n_iter)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def said(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


@pytest.mark.slow
def test_february_knows_january_in_a_new_process(url):
    assert said(month(url, "january")) == "knows [] has 4"
    assert said(month(url, "february")) == "knows ['january'] has 4"


# More machines


@pytest.mark.slow
def test_two_searchers_share_the_documented_task_on_postgresql(new_database):
    page = (Path(__file__).parent.parent / "docs" / "more-machines.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    url = new_database()
    command = [sys.executable, "-W", "error", "-c", script.replace("n_iter=50", "n_iter=6")]
    both = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "LBO_STORAGE": url}
        )
        for _ in range(2)
    ]
    assert all(said(process).startswith("{'C':") for process in both)
    trials = lbo.Stream("churn", url).study("2026-01").trials
    assert all(trial.state == TrialState.COMPLETE for trial in trials)
    assert 6 <= len(trials) <= 7
    assert len({trial.params["C"] for trial in trials}) == len(trials)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_folds_run_on_a_dask_cluster(data):
    def where(estimator, X, y):
        return {"score": estimator.score(X, y), "process": os.getpid()}

    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster), parallel_config("dask"):
        there = search(space=GRID, n_iter=6, scoring=where, refit="score").fit(*data)
    processes = {process for split in range(3) for process in there.cv_results_[f"split{split}_test_process"]}
    assert len(processes) == 2
    assert os.getpid() not in processes
    here = GridSearchCV(LogisticRegression(), GRID, cv=3).fit(*data)
    assert there.best_score_ == here.best_score_


# Nobody's data

NUMBER, TEXT = 31415.926535, "canary-in-y"


def traces():
    """The canaries in every form in which they may be written down."""
    return [TEXT.encode(), b"31415.9265", struct.pack("<d", NUMBER), struct.pack("<f", NUMBER), b"canary_column"]


def test_the_storage_memory_and_log_hold_no_row_of_the_data(data, ram, url):
    X = pd.DataFrame(np.abs(data[0]), columns=["canary_column", *"abcd"])
    X.iloc[::2, 0] = NUMBER
    y = np.where(data[1] == 1, TEXT, "other")
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    optuna.logging.get_logger("optuna").addHandler(handler)
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        for task in ("a", "b"):
            with pytest.warns((FitFailedWarning, UserWarning)):
                search(Careless(), {"fails": ["never", "always"], **C}, storage=url, task=task, n_iter=6).fit(X, y)
        memory = lbo.Stream("default", url).memory()
    finally:
        optuna.logging.get_logger("optuna").removeHandler(handler)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
    stored = b"".join(path.read_bytes() for path in ram.iterdir())
    assert len(memory.records) == 2
    assert b"lbo:folds" in stored  # this is where it would be
    for trace in traces():
        for where in (stored, memory.to_bytes(), log.getvalue().encode()):
            assert trace not in where


class Careless(Fragile):
    def fit(self, X, y):
        try:
            return super().fit(X.to_numpy(), y)
        except RuntimeError:
            raise RuntimeError(f"cannot fit {X.iloc[0]} {y[:3]}") from None

    def predict(self, X):
        return super().predict(X.to_numpy())


def test_without_scikit_learn_the_cure_is_named():
    code = "import sys; sys.modules['sklearn'] = None; import lbo.sklearn"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'lbo[sklearn]'" in ran.stderr
