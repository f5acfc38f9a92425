"""`lbo demo`: real patients, window by window, tuned with a memory and without."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from optuna.study import Study
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lbo.experiments import DataError, cohorts
from lbo.interrupts import interrupts
from lbo.stream import Stream
from lbo.tuning import CLOSE, trials_to

COHORT, OVERLAP = "rotterdam", 2


@dataclass(frozen=True)
class Way:
    """One way to tune a window."""

    study: Study
    seconds: float

    @property
    def best(self) -> float:
        return self.study.best_value

    def trials_to(self, auc: float) -> int | None:
        return trials_to(self.study.get_trials(deepcopy=False), auc)


@dataclass(frozen=True)
class Line:
    """A window tuned both ways."""

    window: str
    patients: int
    trials_remembering: int | None  # to come close to the better of the two best AUCs; None if it never did
    trials_afresh: int | None
    auc_remembering: float
    auc_afresh: float
    seconds_remembering: float
    seconds_afresh: float


@dataclass(frozen=True)
class Size:
    """How much the demo does."""

    windows: int = 5
    first: int = 40  # trials of the first window
    trials: int = 15  # of each later one, either way


QUICK = Size(windows=2, first=6, trials=3)


def run(console: Console, out: Path, size: Size, seed: int) -> list[Line]:
    """Tune a cohort's first window thoroughly and each later one twice, in that stream and in one of its own."""
    storage = _fresh_storage(out)
    cohort = cohorts.load(COHORT)
    opening, *later = cohorts.windows(cohort, OVERLAP, size.windows)
    console.print(
        f"{len(cohort.y)} breast cancer patients of Rotterdam: who dies within three years? Each window of years is "
        f"tuned over XGBoost, logistic regression and two naive Bayes. {opening.name} gets {size.first} trials, and "
        f"every later window {size.trials}, twice: in the same stream, which remembers, and afresh.",
        highlight=False,
    )
    with console.status(f"Tuning {opening.name}"):
        _tune(Stream("remembering", storage), opening, size.first, seed)
    steps = track(later, description="Tuning the later windows twice", console=console, transient=True)
    lines = [_line(window, storage, size.trials, seed) for window in steps]
    console.print(_table(lines))
    console.print(_sentence(lines, size.trials), highlight=False)
    path = _write(lines, out / "demo.csv")
    console.print(f"Every trial is in {storage}, the table in {path}", soft_wrap=True, highlight=False)
    with console.status("Writing the report"):
        report = Stream("remembering", storage).report(out / "report.html")
    console.print(
        f"Open {report} in a browser: what was remembered, and what it advises", soft_wrap=True, highlight=False
    )
    return lines


def _fresh_storage(out: Path) -> str:
    path = out / "demo.db"
    if path.exists():
        raise DataError(f"The demo starts with an empty storage, but {path} exists. Remove it, or use another --out.")
    out.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"


def _line(window: cohorts.Window, storage: str, trials: int, seed: int) -> Line:
    remembering = _tune(Stream("remembering", storage), window, trials, seed)
    afresh = _tune(Stream(f"afresh {window.name}", storage), window, trials, seed)
    near = max(remembering.best, afresh.best) - CLOSE
    return Line(
        window.name, len(window.y), remembering.trials_to(near), afresh.trials_to(near),
        remembering.best, afresh.best, remembering.seconds, afresh.seconds,
    )  # fmt: skip


def _tune(stream: Stream, window: cohorts.Window, trials: int, seed: int) -> Way:
    start = time.perf_counter()
    study = stream.study(window.name, direction="maximize", seed=seed)
    with interrupts() as heed:
        study.optimize(cohorts.objective(window), n_trials=trials, callbacks=[lambda *_: heed()])
    return Way(study, time.perf_counter() - start)


def _table(lines: Sequence[Line]) -> Table:
    table = Table(title="Remembering / afresh", title_justify="left")
    for heading in ("window", "patients", f"trials to within {CLOSE} of the best AUC", "best AUC", "seconds"):
        table.add_column(heading, justify="left" if heading == "window" else "right")
    for line in lines:
        table.add_row(
            line.window,
            str(line.patients),
            f"{line.trials_remembering or 'never'} / {line.trials_afresh or 'never'}",
            f"{line.auc_remembering:.4f} / {line.auc_afresh:.4f}",
            f"{line.seconds_remembering:.0f} / {line.seconds_afresh:.0f}",
        )
    return table


def _sentence(lines: Sequence[Line], trials: int) -> str:
    """What the table comes to; where the best AUC was never reached, all trials were in vain."""
    remembering, afresh = fmean(line.auc_remembering for line in lines), fmean(line.auc_afresh for line in lines)
    took = fmean(line.trials_remembering or trials for line in lines)
    took_afresh = fmean(line.trials_afresh or trials for line in lines)
    return (
        f"On average AUC {remembering:.4f} in {took:.1f} trials with a memory, "
        f"and {afresh:.4f} in {took_afresh:.1f} without."
    )


def _write(lines: Sequence[Line], path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(lines[0])))
        writer.writeheader()
        writer.writerows(asdict(line) for line in lines)
    return path
