"""Experiments that break things: `test_faults.py` runs a few of each, `soak.py` as many as it takes to be sure.

Each takes a seed, asserts, and returns what it saw. Workers are forked processes, so that
killing one is cheap to repeat.
"""

import functools
import itertools
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
import traceback
from datetime import datetime, timedelta
from pathlib import Path

import optuna
import sqlalchemy
from optuna.trial import TrialState

import lbo
from cheap import Cheap
from lbo.storage import open_storage
from lbo.trials import alive

MODEL = Cheap(width=200)
TASKS = ("a", "b", "c")
N_TRIALS = 4
RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where SQLite need not wait for a disk

_fork = multiprocessing.get_context("fork")


def objective(trial):
    return trial.suggest_float("x", 0, 1) + (trial.suggest_categorical("c", ["p", "q"]) == "p")


# Killed at a random moment


def kill_and_resume(directory: Path, seed: int) -> dict:
    """Kill a three-task stream with signal 9 at a random moment, look at what is left, and go on."""
    database, copy = directory / "lbo.db", directory / "copy.db"
    database.unlink(missing_ok=True)
    url = f"sqlite:///{database}"
    rng = random.Random(seed)
    worker = _start(_run_doomed, url, rng.randrange(_statements(directory)), rng.choice([0.0, 0.001, 0.003]))
    worker.join()
    assert worker.exitcode == -signal.SIGKILL

    left = lbo.Stream("s", url)
    before = {task: left.study(task, model=MODEL).trials for task in left.tasks}
    dead = [(task, t) for task, trials in before.items() for t in trials if t.state == TrialState.RUNNING]
    shutil.copy(database, copy)
    _derived_memory_is_the_stored_one(lbo.Stream("s", f"sqlite:///{copy}"))

    beating = _age_heartbeats(database)
    _join(_start(_run_stream, url))
    stream = lbo.Stream("s", url)
    assert stream.tasks == list(TASKS)
    retried = 0
    for task in TASKS:
        trials = stream.study(task, model=MODEL).trials
        _nothing_lost(before.get(task, []), trials)
        assert sum(t.state == TrialState.COMPLETE for t in trials) >= N_TRIALS
        assert alive(trials, datetime.now() + timedelta(hours=2)) == []
        retried += sum("failed_trial" in t.system_attrs for t in trials)
    assert retried == sum(t._trial_id in beating for _, t in dead)
    _derived_memory_is_the_stored_one(stream)
    where = f"task {list(before)[-1]}" if before else "before the first task"
    return {"killed in": where, "dead trials": len(dead), "run again": retried}


def _run_stream(url: str) -> None:
    stream = lbo.Stream("s", url)
    for task in TASKS:
        study = stream.study(task, seed=0, model=MODEL)
        while sum(t.state == TrialState.COMPLETE for t in study.get_trials(deepcopy=False)) < N_TRIALS:
            study.optimize(objective, n_trials=1)


def _run_doomed(url: str, statement: int, delay: float) -> None:
    """Run the stream, but die shortly after its n-th SQL statement."""
    counter = itertools.count()

    def count(*_):
        if next(counter) == statement:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", count)
    _run_stream(url)
    time.sleep(1)  # the last statements leave no time to die in


@functools.cache
def _statements(directory: Path) -> int:
    """How many SQL statements a run takes that nobody kills."""
    counter = itertools.count()
    listener = (sqlalchemy.Engine, "before_cursor_execute", lambda *_: next(counter))
    sqlalchemy.event.listen(*listener)
    _run_stream(f"sqlite:///{directory}/counted.db")
    sqlalchemy.event.remove(*listener)
    return next(counter) - 5  # heartbeats vary


def _age_heartbeats(database: Path) -> set[int]:
    """As if everything so far had happened an hour ago: what is running is dead. The trials that had a heartbeat."""
    with sqlite3.connect(database) as connection:
        connection.execute("update trial_heartbeats set heartbeat = datetime(heartbeat, '-1 hour')")
        beating = {row[0] for row in connection.execute("select trial_id from trial_heartbeats")}
    connection.close()
    return beating


def _nothing_lost(before, after) -> None:
    for old, new in zip(before, after, strict=False):
        if old.state.is_finished():
            assert (old.number, old.state, old.params, old.values) == (new.number, new.state, new.params, new.values)
    assert len(after) >= len(before)
    assert [t.number for t in after] == list(range(len(after)))


def _derived_memory_is_the_stored_one(stream) -> None:
    stored = stream.memory(MODEL)
    stream.rebuild(MODEL)
    assert stream.memory(MODEL) == stored


# Eight at once


def crowd(url: str, workers: int = 8, n_trials: int = 3) -> dict:
    """Workers open an empty storage at once, share a task, and start the next one at once."""
    barrier = _fork.Barrier(workers)
    start = time.monotonic()
    crowd = [_start(_join_in, url, barrier, n_trials) for _ in range(workers)]
    for worker in crowd:
        _join(worker, timeout=600)
    seconds = time.monotonic() - start
    stream = lbo.Stream("s", url)
    assert stream.tasks == ["a", "b"]
    for task in stream.tasks:
        trials = stream.study(task, model=MODEL).trials
        assert [t.number for t in trials] == list(range(workers * n_trials))
        assert {t.state for t in trials} == {TrialState.COMPLETE}
    newest = stream._shelf.read()[0]
    assert [(t.finished, t.unfinished) for t in newest.covers] == [(workers * n_trials, 0)]
    stream.rebuild(MODEL)
    assert stream._shelf.read()[0].memory == newest.memory
    return {"workers": workers, "trials": 2 * workers * n_trials, "seconds": round(seconds, 1)}


def _join_in(url: str, barrier, n_trials: int) -> None:
    for task in ("a", "b"):
        barrier.wait(timeout=100)  # in case another worker died
        study = lbo.Stream("s", url).study(task, seed=0, model=MODEL)
        study.optimize(objective, n_trials=n_trials)


# PostgreSQL goes away and comes back


def restart(postgres, url: str, directory: Path, seed: int, n_trials: int = 25) -> dict:
    """Stop PostgreSQL at a random moment of a running study, start it again two seconds later, and go on."""
    log = directory / "told.txt"
    log.unlink(missing_ok=True)
    lbo.Stream("s", url).study("a", model=MODEL)
    worker = _start(_log_trials, url, n_trials, log, _slow)
    _wait(worker, lambda: log.exists() and len(log.read_text().splitlines()) >= 3)
    time.sleep(random.Random(seed).uniform(0, 0.3))
    postgres.stop()
    time.sleep(2)
    postgres.start()
    worker.join(120)
    return _outcome(worker, url, log, n_trials)


def restart_while_idle(postgres, url: str, directory: Path, n_trials: int = 4) -> dict:
    """The same while an objective is evaluated, which is most of a study's life; its value comes before the server."""
    log, inside, go = (directory / name for name in ("told.txt", "inside", "go"))

    def waits(trial):
        if trial.number == 2:
            inside.touch()
            while not go.exists():
                time.sleep(0.01)
        return objective(trial)

    lbo.Stream("s", url).study("a", model=MODEL)
    worker = _start(_log_trials, url, n_trials, log, waits)
    _wait(worker, inside.exists)
    postgres.stop()
    go.touch()
    time.sleep(2)
    postgres.start()
    worker.join(120)
    return _outcome(worker, url, log, n_trials)


def _outcome(worker, url: str, log: Path, n_trials: int) -> dict:
    error = _error(worker)
    assert error is None or "Run the same again once it is back" in error, error
    told = dict(line.split() for line in log.read_text().splitlines())
    study = lbo.Stream("s", url).study("a", seed=0, model=MODEL)
    kept = {str(t.number): repr(t.value) for t in study.trials if t.state == TrialState.COMPLETE}
    assert told.items() <= kept.items()
    assert error is not None or len(kept) == n_trials
    study.optimize(objective, n_trials=1)
    return {"outcome": "went on" if error is None else "clear error", "trials kept": len(kept)}


def _log_trials(url: str, n_trials: int, log: Path, objective) -> None:
    def note(study, trial):
        with log.open("a") as file:
            file.write(f"{trial.number} {trial.value!r}\n")

    lbo.Stream("s", url).study("a", seed=0, model=MODEL).optimize(objective, n_trials=n_trials, callbacks=[note])


def _slow(trial):
    time.sleep(0.05)
    return objective(trial)


def _wait(worker, condition) -> None:
    while not condition():
        assert worker.is_alive()
        time.sleep(0.01)


# Damaged bytes


def fuzz(directory: Path, times: int, seed: int) -> dict:
    """Flip random bits of what the shelf holds in the database: the same memory comes out, and damage is reported."""
    rng = random.Random(seed)
    whole, database = directory / "whole.db", directory / "lbo.db"
    expected = _a_stored_memory(whole)
    shutil.copy(whole, database)
    storage = open_storage(f"sqlite:///{database}")
    outcomes = {"used": 0, "reported": 0}
    for _ in range(times):
        _restore(whole, database)
        _flip(database, rng)
        with _warnings_of("lbo.shelf") as reports:
            stream = lbo.Stream("s", storage)
            assert stream.tasks == list(TASKS)
            study = stream.study("c", seed=0, model=MODEL)
            assert stream.memory_for(study).to_bytes() == expected
            assert lbo.Stream("s", storage).memory_for(study).to_bytes() == expected
        outcomes["reported" if reports else "used"] += 1
    return outcomes


def _a_stored_memory(database: Path) -> bytes:
    database.unlink(missing_ok=True)
    _run_stream(f"sqlite:///{database}")
    stream = lbo.Stream("s", f"sqlite:///{database}")
    return stream.memory_for(stream.study("c", model=MODEL)).to_bytes()


def _restore(whole: Path, database: Path) -> None:
    source, target = sqlite3.connect(whole), sqlite3.connect(database)
    source.backup(target)
    source.close()
    target.close()


def _flip(database: Path, rng: random.Random) -> None:
    connection = sqlite3.connect(database)
    connection.text_factory = bytes
    rows = connection.execute(
        "select study_system_attribute_id, value_json from study_system_attributes join studies using (study_id) "
        "where study_name = 's/:memory:' and key like 'lbo:memory:%'"
    ).fetchall()
    # Markers are short and matter most, so every row is as likely as any other.
    row, data = rng.choice(rows)
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    connection.execute(
        "update study_system_attributes set value_json = cast(? as text) where study_system_attribute_id = ?",
        (bytes(damaged), row),
    )
    connection.commit()
    connection.close()


class _warnings_of:
    """The messages a logger warns with."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def __enter__(self) -> list[str]:
        messages: list[str] = []
        self._handler = logging.Handler()
        self._handler.emit = lambda record: messages.append(record.getMessage())
        self._logger.addHandler(self._handler)
        self._logger.propagate = False
        return messages

    def __exit__(self, *error) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.propagate = True


# Processes


def _start(target, *arguments):
    worker = _fork.Process(target=_reporting, args=(target, *arguments))
    worker.report, sender = _fork.Pipe(duplex=False)
    worker._args = (*worker._args, sender)
    worker.start()
    sender.close()
    return worker


def _reporting(target, *arguments) -> None:
    *arguments, sender = arguments
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        target(*arguments)
    except BaseException:
        sender.send(traceback.format_exc())
        raise SystemExit(1) from None
    sender.send(None)


def _error(worker) -> str | None:
    """What a worker that is over died of."""
    return worker.report.recv() if worker.report.poll(0) else f"silence, exit code {worker.exitcode}"


def _join(worker, timeout: float = 120) -> None:
    worker.join(timeout)
    error = _error(worker)
    assert error is None, error
