"""The command `lbo`, in processes of its own and, where only its output matters, in this one."""

import re

import optuna
import pytest

import lbo
from lbo.models import Paper
from terminal import command, invoke

MODEL = Paper(networks=3, units=4, steps=2)


def objective(trial):
    return trial.suggest_float("x", 0, 1) + (trial.suggest_categorical("c", ["[red]", "q"]) == "q")


@pytest.fixture
def url(ram):
    """A storage with a stream of three tasks, the last of them too young to be remembered."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = f"sqlite:///{ram}/lbo.db"
    stream = lbo.Stream("heart", url)
    for task, n_trials in {"1985-88": 3, "[bold]86": 3, "1987-90": 1}.items():
        stream.study(task, direction="maximize", seed=0, model=MODEL).optimize(objective, n_trials=n_trials)
    return url


def test_the_real_command(url, ram):
    listed = command("streams", cwd=ram)  # finds lbo.db where it is run
    assert listed.returncode == 0, listed.stderr
    assert re.search(r"heart\s+│ maximize\s+│ 3\s+│ 1987-90", listed.stdout)
    assert command("--version", cwd=ram).stdout == f"lbo {lbo.__version__}\n"
    wrong = command("show", "liver", cwd=ram)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "Error: There is no stream 'liver' in sqlite:///lbo.db; its streams are: 'heart'.\n"


@pytest.mark.parametrize(
    "arguments", [["streams"], ["show", "s"], ["forget", "s", "t"], ["rebuild", "s"], ["adopt", "s", "x"]]
)
def test_no_command_creates_a_database_that_is_not_there(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lbo.errors.StreamError, match=r"'lbo.db' does not exist"):
        invoke(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_show_draws_what_is_remembered(url):
    output = invoke("show", "heart", "--storage", url)
    memory = lbo.Stream("heart", url).memory()
    assert "Stream heart: 3 tasks, maximize, model Paper" in output
    assert f"{memory.nbytes:,} bytes" in output
    best, value = memory.records[0].best[0]
    assert f"c={best['c']}, x={best['x']:.4g}" in output
    assert f"{value:.6g}" in output
    assert re.search(r"1987-90 .* nothing to remember yet", output)
    assert all(name in output for name in memory.records[0].hyper)
    shades = ["■" if gate > 0.5 else "▪" if gate > 0.1 else "·" for gate in memory.records[1].gates]
    assert re.search(r"\[bold\]86\s+│\s+" + r"\s+│\s+".join(shades), output)
    assert re.search(r"tasks that use it\s+│\s+" + r"\s+│\s+".join(map(str, memory.usage)), output)


def test_show_cuts_long_streams(url):
    output = invoke("show", "heart", "--storage", url, "--last", "1")
    assert "The last 1 of them" in output
    assert "1985-88" not in output


def test_a_stream_that_remembers_nothing_is_shown(ram):
    url = f"sqlite:///{ram}/lbo.db"
    lbo.Stream("heart", url).study("a")
    assert "nothing to remember yet" in invoke("show", "heart", "--storage", url)


def test_forget_and_rebuild(url):
    assert invoke("forget", "heart", "1985-88", "--storage", url) == "Forgot task '1985-88' of stream 'heart'.\n"
    stream = lbo.Stream("heart", url)
    assert stream.tasks == ["[bold]86", "1987-90"]
    memory = stream.memory(MODEL)
    assert "from 2 tasks" in invoke("rebuild", "heart", "--storage", url)
    assert lbo.Stream("heart", url).memory(MODEL) == memory


def test_adopt(url, ram):
    elsewhere = f"sqlite:///{ram}/elsewhere.db"
    for name, where in {"old": url, "older": elsewhere}.items():
        study = optuna.create_study(study_name=name, storage=where, direction="maximize")
        study.optimize(objective, n_trials=2)
    invoke("adopt", "heart", "old", "--storage", url)
    output = invoke("adopt", "heart", "older", "--storage", url, "--from", elsewhere)
    assert "5 tasks now" in output
    assert lbo.Stream("heart", url).tasks[3:] == ["old", "older"]
    new = f"sqlite:///{ram}/new.db"
    invoke("adopt", "fresh", "older", "--storage", new, "--from", elsewhere)
    assert lbo.Stream("fresh", new).tasks == ["older"]


def test_report_writes_one_file_and_says_where(url, ram):
    path = ram / "heart.html"
    assert str(path) in invoke("report", "heart", "--storage", url, "--out", str(path)).replace("\n", "")
    assert "1985-88" in path.read_text()


def test_streams_of_an_empty_storage(ram):
    url = f"sqlite:///{ram}/lbo.db"
    optuna.create_study(storage=url)
    assert "There are no streams" in invoke("streams", "--storage", url)


def test_help_names_every_command():
    output = invoke("--help")
    for name in ["streams", "show", "forget", "rebuild", "adopt", "tune", "demo", "--version"]:
        assert name in output
