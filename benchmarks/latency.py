"""How long an ask takes, nine mixed and conditional dimensions, as a task's trials grow: lbo beside other samplers.

    python benchmarks/latency.py                         10 to 5,000 trials, half an hour at the most
    python benchmarks/latency.py --trials 50 100 200     fewer
    python benchmarks/latency.py --quick

Every sampler sees the same random trials in Optuna's in-memory storage, on one thread, in a process of its own for each
number of trials, which ends after --cap seconds of the processor: whoever has not answered by then is left out from
there on. Each ask is told a value before the next, so hyper-parameters are learned anew as often as in real use. Ratios
within one run are what counts. A sampler whose package is not installed is left out.

GPSampler models only what every trial has, here one categorical, and leaves the rest to chance. So it is measured on
nine dimensions without conditions as well ("flat"), and the default model beside it.

Writes results/latency.json, latency.md and latency.png.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import optuna
import psutil

import floor
import lbo
import machine
import output
import workload
from machine import Seconds
from workload import ask_and_tell

TRIALS = (10, 20, 50, 100, 200, 500, 1000, 5000)
PAIRS = (("flat: lbo, five tasks", "flat: Optuna GPSampler"), ("lbo, five tasks", "Optuna GPSampler"))  # compared


def main() -> None:
    options = output.parser(__doc__)
    options.add_argument("--trials", type=int, nargs="*", default=list(TRIALS))
    options.add_argument("--asks", type=int, default=15)
    options.add_argument("--cap", type=float, default=60.0, help="processor seconds at a number of trials")
    options.add_argument("--samplers", nargs="*", help=f"of {', '.join(CONTENDERS)}")
    options.add_argument("--measure", help="a sampler; used by the script itself")
    arguments = options.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.trials[0], arguments.asks, arguments.cap)
        return
    if arguments.quick:
        arguments.trials, arguments.asks, arguments.cap = [10, 50], 3, 10.0
    record = {"machine": machine.describe(), "asks": arguments.asks, "cap, s": arguments.cap}
    names = arguments.samplers or installed()
    rows = [row for name in names for row in as_far_as_it_gets(name, arguments)]
    speed = floor.measure_speed()
    record |= {"speed": asdict(speed), "rows": rows}
    output.keep(output.folder(arguments), "latency", record, tables(rows, speed), {"latency": plot(rows)})


# Samplers


class Contender(NamedTuple):
    """A new study of one sampler."""

    study: Callable[[], optuna.Study]
    flat: bool = False
    needs: str = "lbo"  # the package


def remembering(flat: bool) -> optuna.Study:
    """The sixth task of a stream."""
    stream = lbo.Stream("latency", storage=optuna.storages.InMemoryStorage())
    workload.add_past(stream, flat)
    return stream.study("now", direction="minimize", seed=0)


def alone(model: Any = None) -> optuna.Study:
    return optuna.create_study(sampler=lbo.LBOSampler(model=model, seed=0))


def tpe() -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, multivariate=True, group=True))


def gp() -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.GPSampler(seed=0))


def botorch() -> optuna.Study:
    from botorch_samplers import SingleTaskSampler

    return optuna.create_study(sampler=SingleTaskSampler(seed=0))


def smac() -> optuna.Study:
    from smac_sampler import SmacSampler

    return optuna.create_study(sampler=SmacSampler(seed=0))


CONTENDERS = {
    "lbo, no memory": Contender(alone),
    "lbo, five tasks": Contender(lambda: remembering(flat=False)),
    "lbo, Paper": Contender(lambda: alone(lbo.models.Paper())),
    "Optuna TPE": Contender(tpe),
    "Optuna GPSampler": Contender(gp, needs="torch"),
    "BoTorch SingleTaskGP": Contender(botorch, needs="botorch"),
    "SMAC3": Contender(smac, needs="smac"),
    "flat: lbo, five tasks": Contender(lambda: remembering(flat=True), flat=True),
    "flat: Optuna GPSampler": Contender(gp, flat=True, needs="torch"),
}


def installed() -> list[str]:
    """The contenders whose package is there."""
    return [name for name, contender in CONTENDERS.items() if importlib.util.find_spec(contender.needs)]


# One sampler at one number of trials, in a process of its own


def measure(name: str, n: int, asks: int, cap: float) -> None:
    """Print a line for every ask: its seconds, the work that lbo did for it, and the process's size."""
    machine.quiet()
    contender = CONTENDERS[name]
    study = contender.study()
    workload.fill(study, n, seed=100, flat=contender.flat)
    machine.end_after(cap)
    ask_and_tell(study, contender.flat)  # the first one derives the memory
    for _ in range(asks):
        with floor.counted() as work:
            seconds = ask_and_tell(study, contender.flat)
        resident = psutil.Process().memory_info().rss / 2**20
        print(json.dumps({"wall": seconds.wall, "cpu": seconds.cpu, "resident": resident, **asdict(work)}), flush=True)


def as_far_as_it_gets(name: str, arguments: Any) -> list[dict[str, Any]]:
    """A row for each number of trials, up to the first at which it does not answer in time."""
    rows = []
    for n in arguments.trials:
        lines = in_a_new_process(name, n, arguments.asks, arguments.cap)
        if not lines:
            print(f"{name}: no answer at {n} trials within {arguments.cap:g} s; left out from there on.", flush=True)
            break
        rows.append(summary(name, n, lines))
        print(f"{name}, {n} trials: {1000 * rows[-1]['cpu, s']:.1f} ms of the processor, {len(lines)} asks", flush=True)
    return rows


def in_a_new_process(name: str, n: int, asks: int, cap: float) -> list[dict[str, float]]:
    """What the process printed until it was done or out of time."""
    command = [sys.executable, __file__, "--measure", name, f"--trials={n}", f"--asks={asks}", f"--cap={cap}"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | machine.ONE_THREAD)
    if ran.returncode not in (0, machine.ENDED):
        raise RuntimeError(f"{name} failed at {n} trials; its message is above.")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def summary(name: str, n: int, lines: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Medians over asks; means too, since hyper-parameters are not learned at every one."""
    asks = [Seconds(line["wall"], line["cpu"]) for line in lines]
    median, mean = machine.median(asks), machine.mean(asks)
    work = {key: sum(line[key] for line in lines) / len(lines) for key in ("flops", "entries", "evidences")}
    return {
        "sampler": name, "trials": n, "asks": len(lines),
        "wall, s": round(median.wall, 5), "cpu, s": round(median.cpu, 5),
        "mean wall, s": round(mean.wall, 5), "mean cpu, s": round(mean.cpu, 5),
        "slowest cpu, s": round(max(seconds.cpu for seconds in asks), 5),
        "resident, MB": round(max(line["resident"] for line in lines), 1),
        **work,
    }  # fmt: skip


# Tables and plot


def tables(rows: Sequence[Mapping[str, Any]], speed: floor.Speed) -> str:
    parts = {
        "Milliseconds of the processor per ask, median": grid(rows, "cpu, s", 1000),
        "The same, mean: hyper-parameters are not learned at every ask": grid(rows, "mean cpu, s", 1000),
        "Milliseconds on the wall, median": grid(rows, "wall, s", 1000),
        "Resident size of the process, MB": grid(rows, "resident, MB", 1),
        "How far the default model is from its floor": floor_table(rows, speed),
    }
    return "\n".join([f"**{title}**\n\n{table}" for title, table in parts.items()] + [ratios(rows, *PAIRS)])


def grid(rows: Sequence[Mapping[str, Any]], measure_: str, scale: float) -> str:
    """Samplers down, numbers of trials across."""
    sizes = sorted({row["trials"] for row in rows})
    cells = {(row["sampler"], row["trials"]): output.short(scale * row[measure_]) for row in rows}
    names = list(dict.fromkeys(row["sampler"] for row in rows))
    return output.table(["trials", *sizes], [[name, *(cells.get((name, n), "-") for n in sizes)] for name in names])


def ratios(rows: Sequence[Mapping[str, Any]], *pairs: tuple[str, str]) -> str:
    """One sampler's median over another's, a line for each pair, at the numbers of trials that both have."""
    at = {(row["sampler"], row["trials"]): row["cpu, s"] for row in rows}
    lines = []
    for ours, rival in pairs:
        both = [n for name, n in at if name == ours and (rival, n) in at]
        if both:
            lines.append(f"* {ours} / {rival}: " + ", ".join(f"{at[ours, n] / at[rival, n]:.2f} at {n}" for n in both))
    return "\n".join(lines) + "\n"


def floor_table(rows: Sequence[Mapping[str, Any]], speed: floor.Speed) -> str:
    header = ["", "trials", "evidences", "Mflop", "million entries", "floor, ms", "measured, ms", "times the floor"]
    return output.table(header, [_floor_row(row, speed) for row in rows if row["entries"]])


def _floor_row(row: Mapping[str, Any], speed: floor.Speed) -> list[Any]:
    work = floor.Work(row["flops"], row["entries"], row["evidences"])
    least, measured = speed.floor(work), row["mean cpu, s"]
    numbers = [work.evidences, work.flops / 1e6, work.entries / 1e6, 1000 * least, 1000 * measured, measured / least]
    return [row["sampler"], row["trials"], *map(output.short, numbers)]


def plot(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Milliseconds against trials."""
    series = {}
    for name in dict.fromkeys(row["sampler"] for row in rows):
        of_name = [row for row in rows if row["sampler"] == name]
        series[name] = [row["trials"] for row in of_name], [1000 * row["cpu, s"] for row in of_name]
    return output.lines("Median ask, nine mixed dimensions", "trials", "milliseconds of the processor", series)


if __name__ == "__main__":
    main()
