"""Runs methods on sequences of tasks, and keeps every trial on disk.

A unit of work is one method on one sequence in one repetition. It has a file of its own, named after everything that
its trials depend on, so that a killed run goes on at the task where it stopped, another setting starts a file of its
own, and the order of the merged trials does not depend on who finished first.

    out/units/SEQUENCE/METHOD/REPETITION-FINGERPRINT.csv     task, trial, value, truth, at
    out/units/SEQUENCE/METHOD/REPETITION-FINGERPRINT.seconds.csv
    out/trials.csv, out/seconds.csv, out/tasks.csv           merged, once all units are done

Fairness: the five random points of a task come from (seed, sequence, repetition, task), never from the method; all
methods get the same functions with the same noise, and as many trials.
"""

from __future__ import annotations

import csv
import hashlib
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

import lbo
from lbo.errors import LboError
from lbo.experiments import sequences
from lbo.experiments.methods import Method
from lbo.experiments.problems import At, Problem, Step, as_int
from lbo.experiments.sequences import TaskSequence
from lbo.sampler import LBOSampler
from lbo.seeds import Seed

FORMAT = 1  # of the files; a change starts all anew
TRIAL_COLUMNS = ("sequence", "method", "repetition", "task", "trial", "value", "truth", "at")
SECONDS_COLUMNS = ("sequence", "method", "repetition", "task", "trial", "seconds")
_counts: Any = None  # a worker's queue of trials made, set when it starts
TASK_COLUMNS = ("sequence", "repetition", "task", "name", "minimum", "std", "spread")


class CodeChanged(LboError):
    """Processes of one run found different code on disk."""


@dataclass(frozen=True)
class Plan:
    """What to run."""

    sequences: tuple[TaskSequence, ...]
    methods: tuple[Method, ...]
    repeats: int
    trials: int
    seed: int
    out: Path

    def units(self) -> list[Unit]:
        """All units, in the order of the merged files."""
        return [make_unit(sequence, method, repetition, self.trials, self.seed, self.out)
                for sequence in self.sequences for method in self.methods
                for repetition in range(self.repeats)]  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """One method on one sequence in one repetition."""

    sequence: TaskSequence
    method: Method
    repetition: int
    trials: int
    seed: int
    out: Path
    fingerprint: str

    @property
    def path(self) -> Path:
        """The file of its trials."""
        folder = self.out / "units" / self.sequence.name / self.method.name.replace(" ", "-")
        return folder / f"{self.repetition}-{self.fingerprint}.csv"

    def problems(self) -> list[Problem]:
        return self.sequence.tasks(tasks_seed(self.seed, self.repetition))

    def initial(self, task: int, problem: Problem, n: int) -> list[At]:
        """Random points; the first are the same for every method."""
        return problem.draw(Seed(self.seed) / "initial" / self.sequence.name / self.repetition / task, n)

    def sampler_seed(self, task: int) -> int:
        return as_int(Seed(self.seed) / "sampler" / self.sequence.name / self.repetition / task)


def make_unit(sequence: TaskSequence, method: Method, repetition: int, trials: int, seed: int, out: Path) -> Unit:
    """A unit with the fingerprint of everything that its trials depend on, the code of today among it."""
    record = {"format": FORMAT, "sequence": sequences.settings(sequence), "method": method.settings(),
              "repetition": repetition, "trials": trials, "seed": seed}  # fmt: skip
    fingerprint = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]
    return Unit(sequence, method, repetition, trials, seed, out, fingerprint)


def tasks_seed(seed: int, repetition: int) -> Seed:
    """Of a repetition's functions; sequences made of the same parts share them."""
    return Seed(seed) / "tasks" / repetition


class Row(NamedTuple):
    """One trial of a unit, as it is on disk."""

    task: int
    trial: int
    value: float
    truth: float
    at: At

    def cells(self) -> list[str]:
        return [str(self.task), str(self.trial), repr(self.value), repr(self.truth), json.dumps(self.at)]

    @staticmethod
    def read(cells: Sequence[str]) -> Row:
        task, trial, value, truth, at = cells
        return Row(int(task), int(trial), float(value), float(truth), json.loads(at))


# One unit


def run_unit(unit: Unit, on_trial: Callable[[int], object] = lambda n: None) -> None:
    """Make all trials of a unit that are not on disk yet; `on_trial` hears how many more there are."""
    problems = unit.problems()
    done = _whole_tasks(unit, len(problems))
    on_trial(len(done))
    if len(done) == _size(unit, len(problems)):
        return
    _keep_only(unit, done)
    stream = lbo.Stream(f"{unit.sequence.name} {unit.repetition}", storage=optuna.storages.InMemoryStorage())
    for task, problem in enumerate(problems):
        study = _study(unit, stream, task, problem)
        recorded = [row for row in done if row.task == task]
        if recorded:
            study.add_trials([problem.trial(row.at, row.value) for row in recorded])
            continue
        kept = _best_before(done, problems, task) if unit.method.keeps and task > 0 else None
        for row, seconds in _play(unit, study, task, problem, kept):
            _append(unit, row, seconds)
            done.append(row)
            on_trial(1)


def _play(unit: Unit, study: optuna.Study, task: int, problem: Problem, kept: At) -> Iterator[tuple[Row, float]]:
    """The trials of one task, as they are made."""
    given = unit.initial(task, problem, unit.method.drawn(task, unit.trials)) if kept is None else [kept]
    for number in range(unit.method.budget(task, unit.trials)):
        if number < len(given):
            step = _add(study, problem, given[number], number)
        else:
            step = problem.step(study)
        yield Row(task, number, step.value, problem.truth(step.at), step.at), step.seconds


def _add(study: optuna.Study, problem: Problem, at: At, number: int) -> Step:
    value = problem.evaluate(at, number)
    study.add_trial(problem.trial(at, value))
    return Step(at, value, 0.0)


def _study(unit: Unit, stream: lbo.Stream, task: int, problem: Problem) -> optuna.Study:
    """The task's study with the method's sampler; in the stream only if the method remembers."""
    method, seed = unit.method, unit.sampler_seed(task)
    if method.sampler is not None:
        return optuna.create_study(sampler=method.sampler(seed))
    if not method.remembers:
        return optuna.create_study(sampler=LBOSampler(model=method.model, seed=seed, candidates=problem.candidates))
    study = stream.study(f"{task}", direction="minimize", model=method.model)
    study.sampler = LBOSampler(model=method.model, seed=seed, stream=stream, candidates=problem.candidates)
    return study


def _best_before(done: Sequence[Row], problems: Sequence[Problem], task: int) -> At:
    """The best point of the task before, as a point of this task."""
    best = min((row for row in done if row.task == task - 1), key=lambda row: row.value)
    return problems[task].again(best.at, problems[task - 1])


# Its files


def recorded_trials(unit: Unit) -> list[list[optuna.trial.FrozenTrial]]:
    """The trials of a finished unit, task by task."""
    problems = unit.problems()
    rows = _whole_tasks(unit, len(problems))
    return [[problem.trial(row.at, row.value) for row in rows if row.task == task]
            for task, problem in enumerate(problems)]  # fmt: skip


def _size(unit: Unit, tasks: int) -> int:
    return sum(unit.method.budget(task, unit.trials) for task in range(tasks))


def _whole_tasks(unit: Unit, tasks: int) -> list[Row]:
    """The trials on disk, up to the last task that is complete."""
    rows = [Row.read(cells) for cells in _read(unit.path)]
    whole: list[Row] = []
    for task in range(tasks):
        of_task = [row for row in rows if row.task == task]
        if len(of_task) != unit.method.budget(task, unit.trials):
            break
        whole += of_task
    return whole


def _read(path: Path) -> list[list[str]]:
    """The lines of a file without the half-written last one of a killed run."""
    if not path.is_file():
        return []
    text = path.read_text()
    return list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))


def _keep_only(unit: Unit, done: Sequence[Row]) -> None:
    """Cut a killed task's trials off both files."""
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    seconds = _read(_seconds_path(unit))[: len(done)]
    _write(unit.path, [row.cells() for row in done])
    _write(_seconds_path(unit), seconds)


def _append(unit: Unit, row: Row, seconds: float) -> None:
    # Seconds first: a trial on disk then always has its seconds.
    for path, cells in ((_seconds_path(unit), [str(row.task), str(row.trial), f"{seconds:.6f}"]),
                        (unit.path, row.cells())):  # fmt: skip
        with path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(cells)


def _seconds_path(unit: Unit) -> Path:
    return unit.path.with_suffix(".seconds.csv")


def _write(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """A whole file, or none of it."""
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    partial.replace(path)


# All units


def run(plan: Plan, jobs: int = 1) -> None:
    """Run what is not on disk yet, with a progress bar, and merge."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    plan.out.mkdir(parents=True, exist_ok=True)
    for sequence in plan.sequences:
        sequence.prepare(jobs)
    # A repetition of everything before the next, so that the time left can be told early.
    units = sorted(plan.units(), key=lambda unit: unit.repetition)
    total = sum(_size(unit, len(unit.problems())) for unit in units)
    with _progress() as progress:
        bar = progress.add_task("trials", total=total)
        (_run_here if jobs == 1 else _run_in_processes)(units, jobs, lambda n: progress.update(bar, advance=n))
    merge(plan)


def _progress() -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                    TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False))  # fmt: skip


def _run_here(units: Sequence[Unit], jobs: int, on_trial: Callable[[int], object]) -> None:
    with threadpool_limits(1):
        for unit in units:
            run_unit(unit, on_trial)


def _run_in_processes(units: Sequence[Unit], jobs: int, on_trial: Callable[[int], object]) -> None:
    context = multiprocessing.get_context("spawn")  # forking a process with BLAS threads is not safe
    counts = context.SimpleQueue()
    listener = threading.Thread(target=_forward, args=(counts.get, on_trial))
    listener.start()
    try:
        with ProcessPoolExecutor(jobs, context, _start_worker, (counts,)) as pool:
            futures = [pool.submit(_run_in_worker, unit) for unit in units]
            for future in as_completed(futures):
                future.result()
    finally:
        counts.put(None)
        listener.join()


def _forward(get: Callable[[], int | None], on_trial: Callable[[int], object]) -> None:
    while (n := get()) is not None:
        on_trial(n)


def _start_worker(counts: Any) -> None:
    """One thread of BLAS, quiet, and no life after the parent: two writers of one file would spoil it."""
    global _counts
    _counts = counts
    threadpool_limits(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_in_worker(unit: Unit) -> None:
    if make_unit(unit.sequence, unit.method, unit.repetition, unit.trials, unit.seed, unit.out) != unit:
        raise CodeChanged(f"The code of {unit.method.name} changed while this run was starting. Start it again.")
    run_unit(unit, _counts.put)


# Merged files


def merge(plan: Plan) -> None:
    """trials.csv, seconds.csv and tasks.csv of a plan whose units are all done."""
    units = plan.units()
    _write(plan.out / "trials.csv", [TRIAL_COLUMNS, *_merged(units, lambda unit: unit.path)])
    _write(plan.out / "seconds.csv", [SECONDS_COLUMNS, *_merged(units, _seconds_path)])
    _write(plan.out / "tasks.csv", [TASK_COLUMNS, *_tasks(plan)])


def _merged(units: Iterable[Unit], path: Callable[[Unit], Path]) -> Iterator[list[str]]:
    for unit in units:
        for cells in _read(path(unit)):
            yield [unit.sequence.name, unit.method.name, str(unit.repetition), *cells]


def _tasks(plan: Plan) -> Iterator[list[str]]:
    """What regret is measured by."""
    for sequence in plan.sequences:
        for repetition in range(plan.repeats):
            for task, problem in enumerate(sequence.tasks(tasks_seed(plan.seed, repetition))):
                scale = [repr(float(x)) for x in (problem.minimum, problem.std, problem.spread)]
                yield [sequence.name, str(repetition), str(task), problem.name, *scale]
