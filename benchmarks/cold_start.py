"""From the start of Python to the first suggestion of a model, in a task that is being resumed.

    python benchmarks/cold_start.py              eleven starts of each kind, a minute or two
    python benchmarks/cold_start.py --quick      three

The SQLite file has five finished tasks of 50 trials, their memory, and 50 trials of the task that goes on. What counts
is the time beyond that of a process which imports Optuna and ends: the target is half a second. Kinds of start take
turns, so that all of them meet the machine equally busy; Optuna's samplers resume the same trials. Phases are timed by
the process itself, and the imports beyond Optuna's by `python -X importtime`.

Writes results/cold_start.json, cold_start.md and cold_start.png.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import lbo
import machine
import output
import workload
from lbo.experiments import figures
from machine import Seconds

IMPORT = {"import optuna": "import optuna; optuna.logging.set_verbosity(optuna.logging.ERROR)"}
ASK = {"ask": "study.ask().suggest_categorical('model', ['xgb', 'lr', 'bnb', 'mnb'])"}
LOAD = "study = optuna.load_study(study_name='cold/now', storage=url, sampler=optuna.samplers.{}(seed=0))"
# What a process does, phase by phase.
STARTS: dict[str, dict[str, str]] = {
    "import optuna": IMPORT,
    "lbo": IMPORT
    | {
        "import lbo": "import lbo; lbo.Stream",  # which is where it loads its modules
        "open storage": "stream = lbo.Stream('cold', storage=url)",
        "find task": "study = stream.study('now', seed=0)",
    }
    | ASK,
    "Optuna TPE": IMPORT | {"open storage": LOAD.format("TPESampler")} | ASK,
    "Optuna GPSampler": IMPORT | {"open storage": LOAD.format("GPSampler")} | ASK,
}
BASE, OURS = "import optuna", "lbo"
LARGEST = 8  # packages in the table


def main() -> None:
    options = output.parser(__doc__)
    options.add_argument("--starts", type=int, default=11)
    arguments = options.parse_args()
    starts = 3 if arguments.quick else arguments.starts
    machine.quiet()
    record: dict[str, Any] = {"machine": machine.describe(), "starts": starts}
    with tempfile.TemporaryDirectory() as work:
        url = f"sqlite:///{work}/lbo.db"
        prepare(url)
        taken = in_turns(installed(), url, starts)
        imports = import_seconds(url)
    rows = [summary(name, runs, taken[BASE]) for name, runs in taken.items()]
    record |= {"rows": rows, "imports, s": imports}
    output.keep(output.folder(arguments), "cold_start", record, tables(rows, imports), {"cold_start": plot(rows)})


def prepare(url: str) -> None:
    """The file: past tasks, the trials of the one that goes on, and a memory on the shelf."""
    stream = lbo.Stream("cold", storage=url)
    workload.add_past(stream)
    study = stream.study("now", seed=0)
    workload.fill(study, 50, seed=100)
    stream.memory_for(study)


def installed() -> list[str]:
    """The starts whose packages are there."""
    return [name for name in STARTS if name != "Optuna GPSampler" or importlib.util.find_spec("torch")]


# One process


class Run(NamedTuple):
    """What a process took as a whole, and phase by phase."""

    total: Seconds
    phases: dict[str, Seconds]


def in_turns(names: Sequence[str], url: str, starts: int) -> dict[str, list[Run]]:
    """Runs of each kind; those of the first turn fill the disk's cache and do not count."""
    turns = [[run(name, url) for name in names] for _ in range(starts + 1)]
    return {name: [turn[i] for turn in turns[1:]] for i, name in enumerate(names)}


def program(phases: Mapping[str, str]) -> str:
    """Code that does the phases and prints the clocks after each."""
    head = "import sys, time; url = sys.argv[1]; marks = []"
    mark = "marks.append((time.perf_counter(), time.process_time()))"
    body = [line for code in phases.values() for line in (code, mark)]
    return "\n".join([head, mark, *body, "import json; print(json.dumps(marks))"])


def run(name: str, url: str) -> Run:
    """A fresh process; its total ends with the last phase, not with the process."""
    start = time.perf_counter()  # which is the same clock in all processes
    marks = [Seconds(*mark) for mark in json.loads(_python([], name, url).stdout)]
    spent = [later.since(earlier) for earlier, later in pairwise(marks)]
    return Run(marks[-1].since(Seconds(start, 0.0)), dict(zip(STARTS[name], spent, strict=True)))


def _python(options: Sequence[str], name: str, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program(STARTS[name]), url]
    # An installed package has its bytecode; a checkout gets it in the first turn, unless it is told not to.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | machine.ONE_THREAD
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


# Imports


def import_seconds(url: str) -> dict[str, float]:
    """Seconds of the imports that follow Optuna's own, by package, largest first."""
    printed = _python(["-X", "importtime"], OURS, url).stderr
    return imports_after("optuna", printed)


def imports_after(package: str, printed: str) -> dict[str, float]:
    """Seconds by package of what `-X importtime` lists after a package was there."""
    lines = [line.partition(":")[2].split("|") for line in printed.splitlines() if line.startswith("import time:")]
    modules = [(name.strip(), own) for own, _, name in lines[1:]]
    done = next(i for i, (name, _) in enumerate(modules) if name == package)
    seconds: Counter[str] = Counter()
    for name, own in modules[done + 1 :]:
        seconds[name.partition(".")[0]] += int(own) / 1e6
    return {name: round(spent, 4) for name, spent in seconds.most_common()}


# Tables and plot


def summary(name: str, runs: Sequence[Run], base: Sequence[Run]) -> dict[str, Any]:
    """Medians of a kind of start, as a whole, beyond the base, and by phase."""
    total, least = (machine.median([run.total for run in some]) for some in (runs, base))
    beyond = total.since(least)
    phases = {phase: machine.median([run.phases[phase] for run in runs]) for phase in STARTS[name]}
    return {
        "start": name,
        "wall, s": round(total.wall, 4), "cpu, s": round(total.cpu, 4),
        "beyond, wall s": round(beyond.wall, 4), "beyond, cpu s": round(beyond.cpu, 4),
        "phases, cpu s": {phase: round(seconds.cpu, 4) for phase, seconds in phases.items()},
        "phases, wall s": {phase: round(seconds.wall, 4) for phase, seconds in phases.items()},
    }  # fmt: skip


def tables(rows: Sequence[Mapping[str, Any]], imports: Mapping[str, float]) -> str:
    phases = list(dict.fromkeys(phase for row in rows for phase in row["phases, cpu s"]))
    measures = ["wall, s", "cpu, s", "beyond, wall s", "beyond, cpu s"]
    whole = output.table(["process", *measures], [[row["start"], *(row[m] for m in measures)] for row in rows])
    parts = output.table(
        ["processor seconds", *phases],
        [[row["start"], *(row["phases, cpu s"].get(phase, "") for phase in phases)] for row in rows],
    )
    largest = list(imports.items())[:LARGEST]
    rest = sum(imports.values()) - sum(seconds for _, seconds in largest)
    packages = output.table(["imported after Optuna", "s"], [*largest, ("the rest", round(rest, 4))])
    return f"Medians; beyond is beyond `import optuna`.\n\n{whole}\n{parts}\n{packages}"


def plot(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Phases stacked, a bar for each kind of start."""
    import plotly.graph_objects as go

    phases = dict.fromkeys(phase for row in rows for phase in row["phases, cpu s"])
    names = [row["start"] for row in rows]
    bars = [go.Bar(x=names, y=[row["phases, cpu s"].get(phase, 0.0) for row in rows], name=phase) for phase in phases]
    figure = go.Figure(bars)
    figure.update_layout(barmode="stack", title="First suggestion of a process", yaxis_title="seconds of the processor",
                         template="plotly_white", width=figures.WIDTH, height=figures.HEIGHT)  # fmt: skip
    return figure


if __name__ == "__main__":
    main()
