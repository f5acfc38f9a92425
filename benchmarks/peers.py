"""Sample efficiency against real peers: same functions, same seeds, same budgets, same five random points.

    python benchmarks/peers.py                           one repetition of everything, 25 trials a task
    python benchmarks/peers.py --repeats 5 --jobs 2      five of them, in two processes
    python benchmarks/peers.py --data branin --methods Lifelong "TPE, winners"
    python benchmarks/peers.py --quick

Data are the scoreboard's: Branin sequences, made functions, relatives of textbook functions, windows of the cohorts,
and the XGBoost table where it is there; the methods are those of contenders.py. On a table, methods that can choose
from a list choose a row, and others are rounded to the nearest row that is left.

A unit of work (a method on a sequence in a repetition) has a file of its own in runs/peers/, as `lbo reproduce` keeps
it, so a killed run goes on where it stopped. Numbers are over the tasks from the second on, where there is a past.
Writes results/peers/peers.json, peers.md, summary.md and the plots of critical differences.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna

import machine
import output
import ranking
from contenders import CONTENDERS, Peer, Tasks, installed
from lbo.experiments import DataError, cohorts, runner, sequences, summary, textbook
from lbo.experiments.problems import Problem, Rows, Step
from lbo.experiments.runner import Plan, Row, Unit
from lbo.experiments.sequences import PublicCohort, SurvivalTable, SyntheticSequence, TableSequence, TaskSequence

if TYPE_CHECKING:
    import pandas as pd

OUT = output.ROOT / "runs" / "peers"
SHOWN = (5, 10, 25, 50)  # trials after which methods are compared
OVERLAP = 3  # years that two windows of patients in a row share
DATA: dict[str, Callable[[], Sequence[TaskSequence]]] = {
    "branin": sequences.branins,
    "synthetic": lambda: [SyntheticSequence(name) for name in ("strangers", "noisy", "family", "alternating")],
    "textbook": lambda: sequences.textbooks(textbook.NEAR),
    "survival": lambda: [SurvivalTable(PublicCohort(name), OVERLAP) for name in cohorts.RECIPES],
    "xgboost": lambda: [TableSequence("xgboost", 5)],
}
QUICK = ("Random", "Lifelong", "TPE, winners", "CMA-ES, warm", "SMAC3", "BoTorch RGPE")


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--data", nargs="*", choices=DATA, default=list(DATA))
    parser.add_argument("--methods", nargs="*", choices=CONTENDERS, default=installed())
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--trials", type=int, default=25, help="of a task")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    machine.quiet()
    plan = make_plan(arguments)
    record = {"machine": machine.describe(), "repetitions": plan.repeats, "trials": plan.trials}
    plan = run(plan, arguments.jobs)
    results = summary.read(plan.out)
    rows = [row for n in SHOWN if n <= plan.trials for row in compare(results, plan, n)]
    out = arguments.out or output.folder(arguments) / "peers"
    drawn = {f"peers-{n}": difference_plot(rows, n) for n in dict.fromkeys(row["trials"] for row in rows)}
    output.keep(out, "peers", record | {"rows": rows}, table(rows), drawn)
    (out / "summary.md").write_text(summary.markdown(summary.summarise(results)))


def make_plan(arguments: argparse.Namespace) -> Plan:
    """What to run; data that are not there are left out."""
    if arguments.quick:
        names = [name for name in QUICK if name in arguments.methods]
        return Plan((sequences.BraninSequence(0.1, 2),), _pick(names), 1, 10, arguments.seed, OUT / "quick")
    chosen: list[TaskSequence] = []
    for name in arguments.data:
        try:
            some = DATA[name]()
            for sequence in some:
                sequence.prepare(arguments.jobs)
                sequence.tasks(runner.tasks_seed(arguments.seed, 0))
            chosen += some
        except DataError as error:
            print(f"{name} is left out. {error}")
    return Plan(tuple(chosen), _pick(arguments.methods), arguments.repeats, arguments.trials, arguments.seed, OUT)


def _pick(names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(CONTENDERS[name] for name in names)


# Running


def run(plan: Plan, jobs: int) -> Plan:
    """Run what is not on disk yet, a repetition of everything before the next; returns the plan without what failed."""
    os.environ.update(machine.ONE_THREAD)  # for the processes that are started from here
    units = sorted(plan.units(), key=lambda unit: unit.repetition)
    failed = set()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker) as pool:
        futures = {pool.submit(run_unit, unit): unit for unit in units}
        for done, future in enumerate(as_completed(futures), start=1):
            unit, error = futures[future], future.exception()
            if error is not None:
                failed.add(unit.method)
            told = future.result() if error is None else f"{unit.method.name} is left out, since it failed: {error!r}"
            print(f"{done} of {len(units)}: {told}", flush=True)
    complete = replace(plan, methods=tuple(method for method in plan.methods if method not in failed))
    runner.merge(complete)
    return complete


def _start_worker() -> None:
    machine.quiet()
    threading.Thread(target=runner._die_with_parent, daemon=True).start()


def run_unit(unit: Unit) -> str:
    """Make the trials of a unit that are not on disk yet; returns what was done."""
    start = time.perf_counter()
    clock = WallClock(unit)
    (run_peer if isinstance(unit.method, Peer) else runner.run_unit)(unit, clock)
    return f"{unit.method.name} on {unit.sequence.name}, {time.perf_counter() - start:.0f} s"


def run_peer(unit: Unit, on_trial: Callable[[int], object]) -> None:
    """What `runner.run_unit` does, for a method that is given its past."""
    peer, problems = unit.method, unit.problems()
    assert isinstance(peer, Peer)
    done = runner._whole_tasks(unit, len(problems))
    on_trial(len(done))
    runner._keep_only(unit, done)
    for task in range(len(done) // unit.trials, len(problems)):
        problem = OwnPoints(problems[task]) if peer.own_points else problems[task]
        study = peer.study(unit.sampler_seed(task), problem, past_trials(done, problems[:task]))
        for row, seconds in runner._play(unit, study, task, problem, None):
            runner._append(unit, row, seconds)
            done.append(row)
            on_trial(1)


def past_trials(done: Sequence[Row], problems: Sequence[Problem]) -> Tasks:
    """The trials of tasks, task by task."""
    return [[problem.trial(row.at, row.value) for row in done if row.task == task]
            for task, problem in enumerate(problems)]  # fmt: skip


class OwnPoints:
    """A problem for a sampler that learns only from points it drew: of a table, they keep the nearest row's value."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)

    def step(self, study: optuna.Study) -> Step:
        if not isinstance(self._problem, Rows):
            return self._problem.step(study)
        table = self._problem.table
        tried = {trial.user_attrs["row"] for trial in study.get_trials(deepcopy=False)}
        start = time.process_time()
        trial = study.ask()
        row = table.nearest(table.suggest(trial), exclude=tried)
        seconds = time.process_time() - start
        trial.set_user_attr("row", row)
        study.tell(trial, self._problem.truth(row))
        return Step(row, self._problem.truth(row), seconds)


class WallClock:
    """Writes the seconds between trials beside a unit's file, a line for each trial."""

    def __init__(self, unit: Unit) -> None:
        self._path = wall_path(unit)
        self._last: float | None = None

    def __call__(self, trials: int) -> None:
        """Called with the number of trials on disk, then with 1 for each that is made."""
        if self._last is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            kept = self._path.read_text().splitlines()[:trials] if self._path.is_file() else []
            self._path.write_text("".join(f"{line}\n" for line in kept))
        else:
            with self._path.open("a") as file:
                file.write(f"{time.perf_counter() - self._last:.6f}\n")
        self._last = time.perf_counter()


def wall_path(unit: Unit) -> Path:
    return unit.path.with_suffix(".wall.csv")


# Comparing


def compare(results: summary.Results, plan: Plan, n: int) -> list[dict[str, Any]]:
    """A row for each method after n trials: regret, rank, seconds of an ask, and how far ranks must be apart."""
    losses = blocks(results, n)
    R = ranking.ranks(losses.to_numpy())
    p, difference = ranking.friedman_p(R), ranking.critical_difference(R.shape[1], len(R))
    cpu, wall = cpu_seconds(results), wall_seconds(plan)
    return [
        {"method": name, "trials": n, "blocks": len(R), "regret": float(losses[name].mean()),
         "median regret": float(losses[name].median()), "rank": float(R[:, i].mean()),
         "ask, CPU s": cpu.get(name), "ask, s": wall.get(name), "Friedman p": p, "critical difference": difference}
        for i, name in enumerate(losses.columns)
    ]  # fmt: skip


def blocks(results: summary.Results, n: int) -> pd.DataFrame:
    """Mean regret after n trials over the later tasks: a row for each sequence and repetition, a column per method."""
    curve = summary.curves(results, [n])
    later = curve[curve["task"] > 0]
    wide = later.pivot_table(index=["sequence", "repetition"], columns="method", values="regret", sort=False)
    return wide.dropna()


def cpu_seconds(results: summary.Results) -> dict[str, float]:
    """Mean of the asks in later tasks, by method; drawn points have none."""
    asks = results.seconds[(results.seconds["seconds"] > 0) & (results.seconds["task"] > 0)]
    return asks.groupby("method")["seconds"].mean().to_dict()


def wall_seconds(plan: Plan) -> dict[str, float]:
    """The same on the wall, evaluation and writing to disk included, which take next to nothing here."""
    asks: dict[str, list[float]] = {}
    for unit in plan.units():
        with runner._seconds_path(unit).open() as file:
            asked = [int(task) > 0 and float(seconds) > 0 for task, _, seconds in csv.reader(file)]
        wall = [float(line) for line in wall_path(unit).read_text().split()]
        asks.setdefault(unit.method.name, []).extend(s for s, counts in zip(wall, asked, strict=True) if counts)
    return {name: float(np.mean(seconds)) for name, seconds in asks.items() if seconds}


# Table and plot


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Methods down, regret and rank after each number of trials across."""
    budgets = list(dict.fromkeys(row["trials"] for row in rows))
    header = ["method", *(f"{what} @{n}" for what in ("regret", "rank") for n in budgets), "ask, CPU s", "ask, s"]
    at = {(row["method"], row["trials"]): row for row in rows}
    names = sorted({row["method"] for row in rows}, key=lambda name: at[name, budgets[-1]]["rank"])
    lines = [
        [name, *(output.short(at[name, n][what]) for what in ("regret", "rank") for n in budgets),
         *(output.short(at[name, budgets[-1]][clock]) for clock in ("ask, CPU s", "ask, s"))]
        for name in names
    ]  # fmt: skip
    tests = [f"* after {n} trials: Friedman p {at[names[0], n]['Friedman p']:.2g}, ranks differ if further apart than "
             f"{at[names[0], n]['critical difference']:.2f} ({at[names[0], n]['blocks']} blocks)"
             for n in budgets]  # fmt: skip
    return f"{output.table(header, lines)}\n" + "\n".join(tests) + "\n"


def difference_plot(rows: Sequence[Mapping[str, Any]], n: int) -> Any:
    of_n = [row for row in rows if row["trials"] == n]
    places = {row["method"]: row["rank"] for row in of_n}
    return ranking.plot(f"Mean rank of regret after {n} trials", places, of_n[0]["critical difference"])


if __name__ == "__main__":
    main()
