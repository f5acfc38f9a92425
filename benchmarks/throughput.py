"""How many trials a second several processes make of one PostgreSQL study whose objective takes no time.

    python benchmarks/throughput.py              1, 2, 4 and 8 workers, a few minutes
    python benchmarks/throughput.py --quick      1 and 2 workers, few trials

lbo works on the sixth task of a stream, Optuna's TPE on a study of its own, each in a new database of the same server,
opened the way either opens it by itself: lbo sends heartbeats and makes sure of its connections, Optuna does not. Every
study begins with 20 trials. Workers are ready before the clock starts, and all of them make the same number of trials.
A duplicate is a trial whose configuration an earlier one has. TPE's workers have different seeds, since with one seed
they would all suggest the same; lbo's have the same seed, which is how a script that is started twice runs.

Writes results/throughput.json, throughput.md and throughput.png. The server does not wait for its disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

import lbo
import machine
import output
import workload
from machine import now

sys.path.append(str(Path(__file__).parent.parent / "tests"))

WORKERS = (1, 2, 4, 8)
TRIALS = 160  # of all workers together
BEFORE = 20
KINDS = ("lbo", "Optuna TPE")


def main() -> None:
    options = output.parser(__doc__)
    options.add_argument("--workers", type=int, nargs="*", default=list(WORKERS))
    options.add_argument("--trials", type=int, default=TRIALS, help="of all workers together")
    options.add_argument("--kind", choices=KINDS, help="be one worker; used by the script itself, as is what follows")
    options.add_argument("--url")
    options.add_argument("--number", type=int)
    arguments = options.parse_args()
    machine.quiet()
    if arguments.kind:
        work(arguments.kind, arguments.url, arguments.number, arguments.trials)
        return
    if arguments.quick:
        arguments.workers, arguments.trials = [1, 2], 24
    record = {"machine": machine.describe(), "trials": arguments.trials}
    rows = list(measure_all(arguments.workers, arguments.trials))
    output.keep(
        output.folder(arguments), "throughput", record | {"rows": rows}, table(rows), {"throughput": plot(rows)}
    )


def measure_all(workers: Iterable[int], trials: int) -> Iterable[dict[str, Any]]:
    """A row for each kind and number of workers, each in a database of its own."""
    from postgres import Postgres

    with tempfile.TemporaryDirectory(prefix="lbo-pg-") as folder, Postgres(folder) as server:
        for count in workers:
            for kind in KINDS:
                url = server.create_database(f"{kind.split()[-1].lower()}{count}")
                row = measure(kind, url, count, trials // count)
                print(f"{kind}, workers: {count}, {row['trials/s']} trials/s", flush=True)
                yield row


# Studies


def prepare(kind: str, url: str) -> None:
    """The study, its first trials, and whatever is to be remembered."""
    if kind == "lbo":
        stream = lbo.Stream("throughput", storage=url)
        workload.add_past(stream)
        study = stream.study("now", direction="minimize", seed=0)
        stream.memory_for(study)
    else:
        study = optuna.create_study(study_name="now", storage=url)
    workload.fill(study, BEFORE, seed=100)


def open_study(kind: str, url: str, number: int) -> tuple[optuna.Study, BaseStorage]:
    """The study as a worker has it."""
    if kind == "lbo":
        stream = lbo.Stream("throughput", storage=url)
        return stream.study("now", seed=0), stream.storage
    storage = optuna.storages.get_storage(url)
    sampler = optuna.samplers.TPESampler(seed=number, multivariate=True, group=True)
    return optuna.load_study(study_name="now", storage=storage, sampler=sampler), storage


# A worker


def work(kind: str, url: str, number: int, trials: int) -> None:
    """Say when ready, wait for the word, make trials, and print what they took."""
    study, storage = open_study(kind, url, number)
    stored = Stopwatch(storage)
    print("ready", flush=True)
    sys.stdin.readline()
    start, stored.seconds, stored.calls = now(), 0.0, 0
    study.optimize(lambda trial: workload.value(workload.suggest(trial)), n_trials=trials)
    spent = now().since(start)
    print(json.dumps({"wall": spent.wall, "cpu": spent.cpu, "storage": stored.seconds, "calls": stored.calls}))


class Stopwatch:
    """Measures the time that this thread spends in a storage, calls within calls counted once."""

    def __init__(self, storage: BaseStorage) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._inside = False
        self._thread = threading.get_ident()
        for name in vars(BaseStorage):
            if not name.startswith("_") and callable(getattr(storage, name)):
                setattr(storage, name, self._timed(getattr(storage, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            if self._inside or threading.get_ident() != self._thread:
                return method(*arguments, **options)
            self._inside, start = True, time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                self._inside = False
                self.seconds += time.perf_counter() - start
                self.calls += 1

        return timed


# All workers


def measure(kind: str, url: str, workers: int, trials: int) -> dict[str, Any]:
    """Some workers at once, each making some trials."""
    prepare(kind, url)
    processes = [_start(kind, url, number, trials) for number in range(workers)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [json.loads(process.communicate()[0]) for process in processes]
    study, _ = open_study(kind, url, 0)
    return summary(kind, told, study.get_trials(deepcopy=False)[BEFORE:])


def _start(kind: str, url: str, number: int, trials: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--kind", kind, "--url", url, f"--number={number}", f"--trials={trials}"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | machine.ONE_THREAD
    )


def summary(kind: str, told: Sequence[Mapping[str, float]], trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """One line of the table, from what each worker told and the trials they made."""
    total = {key: sum(worker[key] for worker in told) for key in ("wall", "cpu", "storage", "calls")}
    n, wall = len(trials), max(worker["wall"] for worker in told)
    return {
        "sampler": kind, "workers": len(told), "trials/s": round(n / wall, 2), "wall, s": round(wall, 2),
        "ms of the processor per trial": round(1000 * total["cpu"] / n, 1),
        "share of time in the storage": round(total["storage"] / total["wall"], 3),
        "ms in the storage per trial": round(1000 * total["storage"] / n, 1),
        "storage calls per trial": round(total["calls"] / n, 1),
        "duplicates": duplicates([trial.params for trial in trials]),
    }  # fmt: skip


def duplicates(configurations: Iterable[Mapping[str, Any]]) -> int:
    """How many configurations an earlier one equals."""
    keys = [tuple(sorted(params.items())) for params in configurations]
    return len(keys) - len(set(keys))


# Table and plot


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    return output.table(list(rows[0]), [list(row.values()) for row in rows])


def plot(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Trials a second against workers."""
    series = {}
    for kind in KINDS:
        of_kind = [row for row in rows if row["sampler"] == kind]
        series[kind] = [row["workers"] for row in of_kind], [row["trials/s"] for row in of_kind]
    return output.lines("Workers on one PostgreSQL study", "workers", "trials a second", series)


if __name__ == "__main__":
    main()
