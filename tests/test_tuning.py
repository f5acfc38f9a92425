"""`lbo tune`: windows tuned in turn, stopped and continued, and what is printed and written at the end."""

import csv
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import optuna
import pandas as pd
import pytest
import skops.io
from optuna.distributions import FloatDistribution, IntDistribution
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

import lbo
from lbo import tuning
from lbo.errors import CannotWrite
from lbo.windows import TableError
from terminal import COMMAND, command, invoke

CANARY = 31415.926535


def small():
    """A space of models that are fitted in milliseconds."""
    pipeline = Pipeline([("scaler", MinMaxScaler(clip=True)), ("model", LogisticRegression())])
    return pipeline, [
        {"model": [LogisticRegression()], "model__C": FloatDistribution(1e-3, 10, log=True)},
        {"model": [BernoulliNB()], "model__alpha": IntDistribution(1, 5)},
    ]


def table(years, seed=0):
    rng = np.random.default_rng(seed)
    year = np.repeat(years, 40)
    x = rng.normal(size=len(year))
    ward = rng.choice(["north", "south", "east"], size=len(year))
    died = (x + (ward == "north") + rng.normal(size=len(year)) > 0.3).astype(int)
    frame = pd.DataFrame({"year": year, "died": died, "x": x, "ward": ward, "smokes": rng.random(len(year)) > 0.5})
    frame.loc[::9, "x"] = np.nan
    frame.loc[::7, "ward"] = None
    return frame


@pytest.fixture(autouse=True)
def in_a_directory_with_a_table(ram, monkeypatch):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    monkeypatch.chdir(ram)
    monkeypatch.setitem(tuning.SPACES, "paper", small)
    table([2001, 2002, 2003]).to_csv("heart.csv", index=False)
    return ram


def run(*extra, trials=3, file="heart.csv", exit_code=0):
    fixed = [file, "--target", "died", "--time", "year", "--window", "2", "--step", "1", "--trials", str(trials)]
    return invoke("tune", *fixed, *extra, exit_code=exit_code)


def rows():
    with open("heart-tuned/windows.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def trials_of(task):
    return lbo.Stream("heart").study(task, direction="maximize").trials


def test_every_window_is_tuned_and_compared_with_the_one_before():
    output = run()
    first, second = rows()
    assert [first["window"], second["window"]] == ["2001-2002", "2002-2003"]
    assert [first["rows"], first["trials"], first["gain"], first["trials_to_level"]] == ["80", "3", "", ""]
    before, after = trials_of("2001-2002"), trials_of("2002-2003")
    best_before = max(before, key=lambda trial: trial.value)
    assert after[0].params == best_before.params
    best = max(trial.value for trial in after)
    assert float(second["score"]) == best
    assert float(second["gain"]) == pytest.approx(best - after[0].value)
    assert f"{best:.4f}" in output
    assert f"{best - after[0].value:+.4f}" in output
    assert lbo.Stream("heart").tasks == ["2001-2002", "2002-2003"]


def test_the_newest_model_is_saved_without_pickle_and_predicts():
    run()
    path = "heart-tuned/model.skops"
    model = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    new = pd.DataFrame({"x": [0.1, None], "ward": ["somewhere else", None], "smokes": [1.0, 0.0]})
    assert model.predict_proba(new).shape == (2, 2)
    assert type(model["model"]).__name__ == rows()[-1]["model"]


def test_a_column_can_be_left_out_and_another_place_chosen():
    run("--drop", "ward", "--drop", "smokes", "--out", "there", "--stream", "liver", "--storage", "sqlite:///other.db")
    path = "there/model.skops"
    model = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    assert list(model.feature_names_in_) == ["x"]
    assert lbo.streams("sqlite:///other.db") == ["liver"]


def test_run_again_it_goes_on_where_it_stopped():
    run(trials=2)
    begun = trials_of("2001-2002")
    run(trials=4)
    assert [trial.params for trial in trials_of("2001-2002")[:2]] == [trial.params for trial in begun]
    assert [len(trials_of(task)) for task in ("2001-2002", "2002-2003")] == [4, 4]
    table_before = rows()
    run(trials=4)
    assert [len(trials_of(task)) for task in ("2001-2002", "2002-2003")] == [4, 4]
    assert rows() == table_before


def test_rows_that_arrive_later_make_new_windows_only():
    run()
    old = rows()
    pd.concat([table([2001, 2002, 2003]), table([2004], seed=1)]).to_csv("heart.csv", index=False)
    run()
    assert rows()[:2] == old
    assert [row["window"] for row in rows()] == ["2001-2002", "2002-2003", "2003-2004"]


def test_a_window_that_has_changed_is_not_continued():
    run()
    table([2001, 2002, 2003])[:-1].to_csv("heart.csv", index=False)
    with pytest.raises(TableError, match=r"had 80 and now has 79. .*lbo forget 'heart' '2002-2003'"):
        run()


def test_an_old_window_that_has_changed_is_left_as_it_was_tuned():
    run()
    old = rows()
    pd.concat([table([2001, 2002, 2003])[1:], table([2004], seed=1)]).to_csv("heart.csv", index=False)
    assert "Window 2001-2002 had 80 rows when it was tuned and has 79 now" in run()
    assert rows()[:2] == old


def test_a_stream_has_one_metric():
    run()
    with pytest.raises(TableError, match=r"tuned for roc_auc and --metric is accuracy. Say --metric roc_auc, or use"):
        run("--metric", "accuracy")


def test_a_file_in_the_place_of_the_folder_is_reported_before_anything_is_tuned():
    with pytest.raises(CannotWrite, match=r"'heart\.csv' cannot be written to"):
        run("--out", "heart.csv")
    assert lbo.streams() == []


def test_a_score_that_was_not_reached_says_so():
    easy, hard = table([2001, 2002, 2003]), table([2003, 2004], seed=1)
    hard["died"] = np.tile([0, 1], len(hard) // 2)  # nothing tells one from the other
    pd.concat([easy[easy.year < 2003], hard]).to_csv("heart.csv", index=False)
    assert "never" in run()


def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(monkeypatch):
    evaluated = []

    def interrupt(*_):
        evaluated.append(1)
        if len(evaluated) == 5:  # in the middle of the second window
            raise KeyboardInterrupt
        return original(*_)

    original = tuning._finished
    monkeypatch.setattr(tuning, "_finished", interrupt)
    output = run(exit_code=130)
    assert "Stopped. Finished trials are in sqlite:///lbo.db: run the same command to go on." in output
    done = len(trials_of("2001-2002"))
    assert 0 < done <= 3
    monkeypatch.setattr(tuning, "_finished", original)
    run()
    assert [len(trials_of(task)) for task in ("2001-2002", "2002-2003")] == [3, 3]


def test_the_configuration_before_is_tried_again_if_it_was_interrupted():
    run(trials=2)
    stream = lbo.Stream("heart")
    stream.forget("2002-2003")
    study = stream.study("2002-2003", direction="maximize")
    study.enqueue_trial({}, user_attrs={tuning.KEPT: True})
    study.ask()  # and never told
    run(trials=2)
    assert rows()[1]["gain"] != ""


@pytest.mark.parametrize(
    ("metric", "classes", "complaint"),
    [
        ("auc", 2, "--metric is one of scikit-learn's scorers.*'auc'"),
        ("roc_auc", 3, "Use --metric roc_auc_ovr"),
        ("precision", 3, "No configuration could be fitted and scored in window 2001-2002. Choose another --metric"),
    ],
)
def test_a_metric_that_does_not_fit(metric, classes, complaint):
    frame = table([2001, 2002, 2003])
    frame["died"] = np.arange(len(frame)) % classes
    frame.to_csv("heart.csv", index=False)
    for _ in range(2):  # also when it is run again
        with pytest.raises(TableError, match=complaint):
            run("--metric", metric, trials=1)


def test_three_classes_and_two_jobs():
    frame = table([2001, 2002])
    frame["died"] = np.arange(len(frame)) % 3
    frame.to_csv("heart.csv", index=False)
    run("--metric", "roc_auc_ovr", "--jobs", "2", trials=1)
    assert 0 < float(rows()[0]["score"]) < 1


def test_the_ready_spaces_run(monkeypatch):
    monkeypatch.undo()
    from lbo import spaces, windows

    assert {"paper": spaces.paper, "rich": spaces.rich} == tuning.SPACES
    window = windows.Window(
        "w", table([2001]).drop(columns=["year", "died"]).astype({"smokes": float}), np.arange(40) % 2
    )
    settings = tuning.Settings("s", optuna.storages.InMemoryStorage(), trials=2, space="rich")
    outcomes, _ = tuning.tune([window], settings, Console(quiet=True))
    assert outcomes[0].trials == 2


def test_how_many_trials_it_took():
    study = optuna.create_study()
    for value in (0.5, None, 0.7, 0.6995):
        state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
        study.add_trial(optuna.trial.create_trial(value=value, state=state))
    assert [tuning.trials_to(study.trials, score) for score in (0.4, 0.6, 0.7, 0.8)] == [1, 3, 3, None]


def test_nothing_that_is_written_but_the_model_holds_a_row(ram):
    frame = table([2001, 2002])
    frame.loc[::2, "x"] = CANARY
    frame.to_csv("heart.csv", index=False)
    printed = run().encode()
    written = b"".join(path.read_bytes() for path in (ram / "lbo.db", ram / "heart-tuned" / "windows.csv"))
    for trace in (b"31415.9265", struct.pack("<d", CANARY), struct.pack("<f", CANARY), b"ward"):
        assert trace not in written + printed


# The real command, in a process of its own


def test_a_bad_file_ends_with_one_line_and_exit_code_2(ram):
    wrong = ["heart.csv", "--target", "cured", "--time", "year", "--window", "2", "--step", "1"]
    ran = command("tune", *wrong, cwd=ram)
    assert ran.returncode == 2
    assert ran.stderr.startswith("Error: --target names a column of the table, but there is no 'cured'.")
    assert ran.stderr.count("\n") == 1


HEEDING_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow
def test_a_real_ctrl_c(ram):
    arguments = ["heart.csv", "--target", "died", "--time", "year", "--window", "2", "--step", "1", "--trials", "40"]
    process = subprocess.Popen(
        # Where the tests run in the background, the signal is ignored, and so it would be by what they start.
        [sys.executable, "-c", HEEDING_CTRL_C, *COMMAND, "tune", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not done() and time.monotonic() < deadline:
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "run the same command to go on" in err
    assert "Traceback" not in err
    assert 0 < done() < 40


def done():
    """Finished trials of the first window, as somebody sees them who only reads."""
    finished = "select count(*) from trials natural join studies where study_name = 'heart/2001-2002' and state in"
    try:
        with closing(sqlite3.connect("file:lbo.db?mode=ro", uri=True)) as database:
            (count,) = database.execute(f"{finished} ('COMPLETE', 'FAIL')").fetchone()
    except sqlite3.OperationalError:  # no file yet, or no tables
        return 0
    return count
