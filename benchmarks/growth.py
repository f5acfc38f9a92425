"""What an ask takes, and what memory and process weigh, as the number of past tasks grows.

    python benchmarks/growth.py                         the default model, 1 to 1,000 tasks, and three rivals
    python benchmarks/growth.py --tasks 1 2 10 --budget 60
    python benchmarks/growth.py --quick

Tasks of 50 trials (--trials) in nine mixed dimensions, each a little different, are put into the storage directly. They
are folded into memory one by one, in a process that notes what each took. Then, for each number of tasks, a memory that
lacks the last of them is put on the shelf, and two new processes ask: the first begins a new task, so it lists the
tasks and folds the last one in; the second resumes that task, which has 20 trials by then, so it reads the memory and
fits; ten more asks follow. The target is a later ask at 1,000 tasks within 1.2 of that at 2.

MTGP and ABLR keep all past trials, BoTorch's MultiTaskGP is given them. Each gets as far as it can in --budget seconds
of the processor, half of them for folding where there is something to fold. Opening a database is not measured: it
takes Optuna the same time for any stream.

Writes results/growth.json, growth.md and a plot growth-*.png of each time and size.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import optuna
import psutil
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

import lbo
import machine
import output
import workload
from filling import add_tasks
from lbo import consolidate, memory
from lbo.models import ABLR, MTGP, Lifelong
from lbo.models.base import Model
from lbo.shelf import Folded, Shelved
from lbo.storage import open_storage
from machine import now
from workload import ask_and_tell

sys.path.append(str(Path(__file__).parent.parent / "tests"))

TASKS = (1, 2, 5, 10, 30, 100, 300, 1000)
TRIALS = 50
STARTED = 20  # trials of the task that is resumed
LATER = 10  # asks after the first
DEFAULT, BOTORCH = "Lifelong", "BoTorch MultiTaskGP"
MODELS: dict[str, Model] = {DEFAULT: Lifelong(), "MTGP": MTGP(), "ABLR-50": ABLR(units=50)}
STREAM, NOW = "growth", "now"
ENOUGH = 24 * 3600.0  # seconds, for the default model


def main() -> None:
    arguments = options()
    machine.quiet()
    if arguments.part:
        machine.end_after(arguments.budget)
        PARTS[arguments.part](arguments)
        return
    if arguments.quick:
        arguments.tasks, arguments.trials, arguments.budget = [1, 2, 4], 15, 20.0
    record = {"machine": machine.describe(), "trials per task": arguments.trials, "budget, s": arguments.budget}
    rows = list(every_row(arguments))
    drawn = {f"growth-{column.partition(',')[0].replace(' ', '-')}": plot(rows, column) for column in PLOTTED}
    output.keep(output.folder(arguments), "growth", record | {"rows": rows}, table(rows), drawn)


def options() -> argparse.Namespace:
    parser = output.parser(__doc__)
    parser.add_argument("--tasks", type=int, nargs="*", default=list(TASKS), help="how many, in ascending order")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of a past task")
    parser.add_argument("--budget", type=float, default=600.0, help="processor seconds for each rival")
    parser.add_argument("--models", nargs="*", default=[*MODELS, BOTORCH], help=f"of {', '.join(MODELS)}, {BOTORCH}")
    parser.add_argument("--part", choices=PARTS, help="used by the script itself, as is what follows")
    parser.add_argument("--model")
    parser.add_argument("--url")
    parser.add_argument("--folder", type=Path)
    return parser.parse_args()


def every_row(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Model by model, storage by storage, size by size."""
    from postgres import Postgres

    for model in arguments.models:
        if model == BOTORCH:
            if importlib.util.find_spec("botorch"):
                yield from botorch_rows(arguments, Budget(arguments.budget))
            continue
        half = ENOUGH if model == DEFAULT else arguments.budget / 2
        with tempfile.TemporaryDirectory(prefix="lbo-pg-") as work, ExitStack() as stack:
            folder = Path(work) / "memories"
            folds = fold_all(model, arguments, folder, Budget(half))
            budget = Budget(half)
            yield from stream_rows(model, f"sqlite:///{work}/lbo.db", folder, folds, arguments, budget)
            if model == DEFAULT:
                server = stack.enter_context(Postgres(f"{work}/server"))
                yield from stream_rows(model, server.create_database("growth"), folder, folds, arguments, budget)


class Budget:
    """Processor seconds that are left to the processes started from here."""

    def __init__(self, seconds: float) -> None:
        self._end = _used() + seconds

    def left(self) -> float:
        return max(self._end - _used(), 0.01)


def _used() -> float:
    """Processor seconds of all processes that were started here and have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def past_task(position: int, trials: int) -> list[FrozenTrial]:
    """The trials of a past task, the same in every process."""
    return workload.random_trials(trials, seed=position, task=position)


# Processes


def in_a_new_process(part: str, model: str, budget: Budget, **more: Any) -> list[dict[str, Any]]:
    """What a part printed until it was done or the budget ended."""
    named = {"part": part, "model": model, "budget": budget.left(), **more}
    flags = [word for name, value in named.items() for word in (f"--{name}", *_words(value))]
    command = [sys.executable, __file__, *flags]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | machine.ONE_THREAD)
    if ran.returncode not in (0, machine.ENDED):
        raise RuntimeError(f"{model}: {part} failed; its message is above.")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list | tuple) else [str(value)]


def report(**numbers: Any) -> None:
    print(json.dumps(numbers), flush=True)


def fold_part(arguments: argparse.Namespace) -> None:
    """Fold task after task; keep each memory to which one more task will be added while somebody looks."""
    model, kept = MODELS[arguments.model], None
    for position in range(1, max(arguments.tasks)):
        trials = past_task(position, arguments.trials)
        start = now()
        kept = consolidate.fold(kept, STREAM, f"t{position}", trials, StudyDirection.MINIMIZE, model)
        seconds = now().since(start)
        if position + 1 in arguments.tasks:
            (arguments.folder / f"{position}.json").write_bytes(kept.to_bytes())
        report(tasks=position, wall=seconds.wall, cpu=seconds.cpu)


def begin_part(arguments: argparse.Namespace) -> None:
    """The first ask of a new task."""
    storage = open_storage(arguments.url)
    start = now()
    study = lbo.Stream(STREAM, storage).study(NOW, seed=0, model=MODELS[arguments.model])
    ask_and_tell(study)
    spent = now().since(start)
    report(wall=spent.wall, cpu=spent.cpu)


def resume_part(arguments: argparse.Namespace) -> None:
    """The first ask of a process that goes on with a task, and later ones."""
    storage = open_storage(arguments.url)
    start = now()
    stream = lbo.Stream(STREAM, storage)
    study = stream.study(NOW, seed=0, model=MODELS[arguments.model])
    ask_and_tell(study)
    first = now().since(start)
    later = machine.median([ask_and_tell(study) for _ in range(LATER)])
    kept = stream.memory_for(study)
    assert kept is not None
    report(first=first, later=later, bytes=kept.nbytes, resident=_resident())


def botorch_part(arguments: argparse.Namespace) -> None:
    """BoTorch's MultiTaskGP of all trials, asked a few times."""
    from botorch_samplers import MultiTaskSampler

    past = [past_task(position, arguments.trials) for position in range(1, arguments.tasks[0] + 1)]
    study = optuna.create_study(sampler=MultiTaskSampler(seed=0, past=past))
    workload.fill(study, STARTED, seed=0)
    first = ask_and_tell(study)
    report(first=first, later=ask_and_tell(study), resident=_resident())


def _resident() -> float:
    return round(psutil.Process().memory_info().rss / 2**20, 1)


PARTS = {"fold": fold_part, "begin": begin_part, "resume": resume_part, "botorch": botorch_part}


# Rows


def fold_all(model: str, arguments: argparse.Namespace, folder: Path, budget: Budget) -> dict[int, dict[str, float]]:
    """Fold as many tasks as the budget allows; returns what the folding of each took."""
    folder.mkdir()
    shared = {"tasks": arguments.tasks, "trials": arguments.trials, "folder": folder}
    folds = in_a_new_process("fold", model, budget, **shared)
    print(f"{model}: {len(folds)} tasks folded in {sum(fold['wall'] for fold in folds):.0f} s", flush=True)
    return {fold["tasks"]: fold for fold in folds}


def stream_rows(
    model: str, url: str, folder: Path, folds: Mapping[int, Mapping[str, float]], arguments: argparse.Namespace,
    budget: Budget,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row for each number of tasks, up to the first for which there is no memory or no time."""
    stream = lbo.Stream(STREAM, url)
    stream._direction("t1", "minimize")  # puts up the shelf
    covered: list[Folded] = []
    for size in arguments.tasks:
        missing = range(len(covered) + 1, size + 1)
        covered += add_tasks(stream, {n: past_task(n, arguments.trials) for n in missing})
        kept = folder / f"{size - 1}.json"
        if size > 1 and not kept.is_file():
            print(f"{model}: the budget ended before {size - 1} tasks were folded.", flush=True)
            return
        if size > 1:
            stream._shelf.write(Shelved(memory.Memory.from_bytes(kept.read_bytes()), tuple(covered[:-1])))
        measured = measure(stream, model, url, budget)
        if measured is None:
            print(f"{model}: the budget ended at {size} tasks.", flush=True)
            return
        row = {"model": model, "storage": url.partition(":")[0].partition("+")[0], "tasks": size, **measured}
        row |= both("consolidation", folds.get(size - 1))
        print(row, flush=True)
        yield row


def measure(stream: lbo.Stream, model: str, url: str, budget: Budget) -> dict[str, Any] | None:
    """Asks of a new task, which is gone afterwards; None if the budget ended first."""
    try:
        begun = in_a_new_process("begin", model, budget, url=url)
        if not begun:
            return None
        workload.fill(stream.study(NOW), STARTED, seed=0)
        resumed = in_a_new_process("resume", model, budget, url=url)
    finally:
        with suppress(KeyError):  # it ended before there was a study
            optuna.delete_study(study_name=f"{STREAM}/{NOW}", storage=stream.storage)
        stream._shelf.clear()
    if not resumed:
        return None
    (ask,) = resumed
    return {
        **both("first ask of a new task", begun[0]),
        **both("first ask of a process", _named(ask["first"])),
        **both("later ask", _named(ask["later"])),
        "memory, bytes": ask["bytes"], "resident, MB": ask["resident"],
    }  # fmt: skip


def botorch_rows(arguments: argparse.Namespace, budget: Budget) -> Iterator[dict[str, Any]]:
    for size in arguments.tasks:
        asked = in_a_new_process("botorch", BOTORCH, budget, tasks=[size], trials=arguments.trials)
        if not asked:
            print(f"{BOTORCH}: the budget ended at {size} tasks.", flush=True)
            return
        row = {"model": BOTORCH, "storage": "none", "tasks": size, "resident, MB": asked[0]["resident"]}
        row |= both("first ask of a process", _named(asked[0]["first"])) | both("later ask", _named(asked[0]["later"]))
        print(row, flush=True)
        yield row


def _named(seconds: Sequence[float]) -> dict[str, float]:
    return dict(zip(("wall", "cpu"), seconds, strict=True))


def both(what: str, seconds: Mapping[str, float] | None) -> dict[str, float]:
    """A time on both clocks, under its name; nothing if it was not measured."""
    if seconds is None:
        return {}
    return {f"{what}, s": round(seconds["wall"], 4), f"{what}, CPU s": round(seconds["cpu"], 4)}


# Table and plots

PLOTTED = ("consolidation, CPU s", "first ask of a process, CPU s", "later ask, CPU s", "memory, bytes")
GROWING = ("later ask, CPU s", "memory, bytes", "resident, MB")
COLUMNS = ["model", "storage", "tasks", "consolidation, CPU s", "first ask of a new task, CPU s",
           "first ask of a process, CPU s", "first ask of a process, s", "later ask, CPU s", "later ask, s",
           "memory, bytes", "resident, MB"]  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = output.table(COLUMNS, [[row.get(column, "") for column in COLUMNS] for row in rows])
    return f"{lines}\n{ratios(rows)}"


def ratios(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much slower and larger the default model is with most tasks than with two."""
    lines = []
    for storage in dict.fromkeys(row["storage"] for row in rows if row["model"] == DEFAULT):
        at = {row["tasks"]: row for row in rows if row["model"] == DEFAULT and row["storage"] == storage}
        most = max(at)
        if 2 in at and most > 2:
            grown = {
                name: at[most][name] / at[2][name] for name in ("later ask, CPU s", "memory, bytes", "resident, MB")
            }
            told = ", ".join(f"{name.partition(',')[0]} {ratio:.2f} x" for name, ratio in grown.items())
            lines.append(f"* {storage}, {most} tasks against 2: {told}")
    return "\n".join(lines) + "\n"


def plot(rows: Sequence[Mapping[str, Any]], column: str) -> Any:
    """A line for every model and storage against the number of tasks."""
    series = {}
    for model, storage in dict.fromkeys((row["model"], row["storage"]) for row in rows if column in row):
        drawn = [row for row in rows if (row["model"], row["storage"]) == (model, storage) and column in row]
        series[f"{model}, {storage}"] = [row["tasks"] for row in drawn], [row[column] for row in drawn]
    return output.lines("Growth with the number of past tasks", "past tasks", column, series)


if __name__ == "__main__":
    main()
