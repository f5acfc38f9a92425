"""`lbo demo`: the whole story in small, and nothing left over from another run."""

import csv
import re

import optuna
import pytest

import lbo
from lbo import demo
from lbo.errors import CannotWrite
from lbo.experiments import DataError
from terminal import invoke


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_the_demo_tells_what_its_storage_holds(ram):
    output = invoke("demo", "--quick", "--out", str(ram))
    assert f"the table in {ram}/demo.csv" in output
    with open(ram / "demo.csv", encoding="utf-8", newline="") as file:
        (line,) = csv.DictReader(file)
    url = f"sqlite:///{ram}/demo.db"
    first, window = lbo.Stream("remembering", url).tasks
    studies = [lbo.Stream(name, url).study(window) for name in ("remembering", f"afresh {window}")]
    assert len(lbo.Stream("remembering", url).study(first).trials) == demo.QUICK.first
    assert [len(study.trials) for study in studies] == [demo.QUICK.trials] * 2
    assert [float(line["auc_remembering"]), float(line["auc_afresh"])] == [study.best_value for study in studies]
    near = max(study.best_value for study in studies) - demo.CLOSE
    for name, study in zip(("trials_remembering", "trials_afresh"), studies, strict=True):
        reached = [trial.number + 1 for trial in study.trials if trial.value >= near]
        assert line[name] == (str(reached[0]) if reached else "")
    assert re.search(rf"{window} .* {studies[0].best_value:.4f} / {studies[1].best_value:.4f}", output)
    with pytest.raises(DataError, match=r"exists\. Remove it"):
        invoke("demo", "--quick", "--out", str(ram))


def test_a_window_that_was_never_reached_counts_as_all_its_trials():
    lines = [demo.Line("a", 9, 2, None, 0.8, 0.7, 1, 1), demo.Line("b", 9, 4, 5, 0.6, 0.6, 1, 1)]
    assert demo._sentence(lines, 15) == "On average AUC 0.7000 in 3.0 trials with a memory, and 0.6500 in 10.0 without."


def test_a_file_in_the_place_of_the_folder_is_reported_first(ram):
    (ram / "taken").write_text("")
    with pytest.raises(CannotWrite, match=r"taken' cannot be written to: .*\. Name another place"):
        invoke("demo", "--quick", "--out", str(ram / "taken"))
