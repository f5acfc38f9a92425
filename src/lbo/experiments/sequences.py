"""Named sequences of tasks, each built anew from a seed for every repetition.

A sequence is a frozen dataclass of settings. `tasks(seed)` gives its problems in the order in which they arrive, the
same for the same seed in any process; `prepare(jobs)` does once what would take long, before processes share the work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lbo.experiments import branin, cohorts, synthetic, tables, textbook
from lbo.experiments.problems import Function, Live, Problem, Rows
from lbo.experiments.tables import Table
from lbo.seeds import Seed

TABLES: dict[str, Callable[[], list[Table]]] = {
    "xgboost": tables.xgboost, "hpobench-mlp": tables.hpobench_mlp, "fcnet": tables.fcnet, "oboe": tables.oboe,
}  # fmt: skip
OBOE_TASKS = 100
MOST_ROWS = 5000  # of a table; larger ones are thinned, since every ask looks at every row
CONFIGURATIONS = 200  # of a tabulated cohort


class TaskSequence(Protocol):
    """See the module's first lines."""

    @property
    def name(self) -> str: ...
    def tasks(self, seed: Seed) -> list[Problem]: ...
    def prepare(self, jobs: int) -> None: ...


def settings(sequence: TaskSequence) -> dict[str, Any]:
    """A sequence's kind and settings, as plain data."""
    return {"kind": type(sequence).__name__, **asdict(sequence)}  # type: ignore[call-overload]


class _Ready:
    """A sequence that needs no preparation."""

    def prepare(self, jobs: int) -> None:
        return None


@dataclass(frozen=True)
class BraninSequence(_Ready):
    """Perturbed Branin functions, new ones in every repetition."""

    sigma: float
    length: int = 5

    @property
    def name(self) -> str:
        return f"branin-{self.sigma:g}"

    def tasks(self, seed: Seed) -> list[Problem]:
        functions = branin.sequence(self.sigma, seed.rng(), self.length)
        return [from_branin(f"{self.name}/{t}", f) for t, f in enumerate(functions)]


def from_branin(name: str, f: branin.Branin) -> Function:
    """A Branin function as a problem."""
    return Function(name, f, f.distributions, f.minimum.value, f.std)


@dataclass(frozen=True)
class TextbookSequence(_Ready):
    """Relatives of one of `textbook.FORMULAS`, new ones in every repetition."""

    formula: str
    distance: float

    @property
    def name(self) -> str:
        return f"{self.formula}-{self.distance:g}"

    def tasks(self, seed: Seed) -> list[Problem]:
        return list(textbook.sequence(self.formula, self.distance, seed))


@dataclass(frozen=True)
class TableSequence(_Ready):
    """The tables of one collection in random order, or the first `length` of them."""

    name: str
    length: int | None = None

    def tasks(self, seed: Seed) -> list[Problem]:
        collection = load_tables(self.name)
        order = seed.rng().permutation(len(collection))[: self.length]
        return [Rows(collection[i]) for i in order]


@cache
def load_tables(name: str) -> list[Table]:
    """The tables of a collection, of at most MOST_ROWS rows each."""
    return [thinned(table, MOST_ROWS) for table in TABLES[name]()]


def thinned(table: Table, rows: int) -> Table:
    """A table of a random subset of another's rows, the same ones for tables that share their configurations."""
    if len(table) <= rows:
        return table
    kept = np.sort((Seed(0) / "thinned").rng().permutation(len(table))[:rows])
    return Table(table.name, table.distributions, [table.rows[i] for i in kept], table.values[kept], table.branch)


@dataclass(frozen=True)
class CohortFile:
    """A user's own table; the arguments are those of `cohorts.from_file`."""

    path: str
    time: str
    followup: str
    event: str
    horizon: float
    features: tuple[str, ...] | None = None
    digest: str = ""  # of the file, so that another file of the same name starts anew

    @property
    def name(self) -> str:
        return Path(self.path).stem

    def load(self) -> cohorts.Cohort:
        return cohorts.from_file(self.path, time=self.time, followup=self.followup, event=self.event,
                                 horizon=self.horizon, features=self.features)  # fmt: skip


def cohort_file(
    path: Path, time: str, followup: str, event: str, horizon: float, features: Sequence[str] | None
) -> CohortFile:
    """A user's own table as it is now."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""
    return CohortFile(str(path), time, followup, event, horizon, tuple(features) if features else None, digest)


@dataclass(frozen=True)
class PublicCohort:
    """One of `cohorts.RECIPES`."""

    name: str

    def load(self) -> cohorts.Cohort:
        return cohorts.load(self.name)


CohortSource = PublicCohort | CohortFile


@cache
def load_cohort(source: CohortSource) -> cohorts.Cohort:
    return source.load()


@dataclass(frozen=True)
class SurvivalTable:
    """A cohort's windows, a fixed set of configurations evaluated once in each."""

    cohort: CohortSource
    overlap: int
    configurations: int = CONFIGURATIONS
    cache_dir: str = "cohort-tables"

    @property
    def name(self) -> str:
        return f"survival-{self.cohort.name}-{self.overlap}"

    def tasks(self, seed: Seed) -> list[Problem]:
        return [Rows(table) for table in _window_tables(self, jobs=1)]

    def prepare(self, jobs: int) -> None:
        _window_tables(self, jobs)


@cache
def _window_tables(sequence: SurvivalTable, jobs: int) -> list[Table]:
    windows = cohorts.windows(load_cohort(sequence.cohort), sequence.overlap)
    return [cohorts.table(window, sequence.configurations, cache_dir=sequence.cache_dir, jobs=jobs)
            for window in windows]  # fmt: skip


@dataclass(frozen=True)
class SurvivalLive(_Ready):
    """A cohort's windows, models trained at every trial."""

    cohort: CohortSource
    overlap: int

    @property
    def name(self) -> str:
        return f"live-{self.cohort.name}-{self.overlap}"

    def tasks(self, seed: Seed) -> list[Problem]:
        return [live(window) for window in cohorts.windows(load_cohort(self.cohort), self.overlap)]


def live(window: cohorts.Window) -> Live:
    """A window as a problem: 1 - AUC over the paper's space."""
    _, flat = cohorts._paper_space()
    return Live(f"{window.cohort}/{window.name}", flat.suggest, flat.distributions, partial(cohorts._loss, window))


@dataclass(frozen=True)
class SyntheticSequence(_Ready):
    """One of `synthetic.SEQUENCES`, new functions in every repetition."""

    name: str

    def tasks(self, seed: Seed) -> list[Problem]:
        return list(synthetic.SEQUENCES[self.name](seed))


def branins(sigmas: Sequence[float] = branin.SIGMAS) -> list[TaskSequence]:
    """The paper's five sequences."""
    return [BraninSequence(sigma) for sigma in sigmas]


def textbooks(distance: float) -> list[TaskSequence]:
    """One for every formula."""
    return [TextbookSequence(name, distance) for name in textbook.FORMULAS]


def collections(names: Sequence[str] = tuple(TABLES)) -> list[TaskSequence]:
    """Sequences of tables; of oboe's 418 tasks, a hundred."""
    return [TableSequence(name, OBOE_TASKS if name == "oboe" else None) for name in names]


def survival(mode: str, sources: Iterable[CohortSource], configurations: int = CONFIGURATIONS) -> list[TaskSequence]:
    """Every overlap that the years of a cohort allow, tabulated ("table") or trained anew ("live")."""
    kind = partial(SurvivalTable, configurations=configurations) if mode == "table" else SurvivalLive
    return [kind(source, overlap) for source in sources
            for overlap, windows in all_windows(load_cohort(source)).items() if len(windows) > 1]  # fmt: skip


def all_windows(cohort: cohorts.Cohort) -> dict[int, list[cohorts.Window]]:
    """The windows of every overlap that the cohort's years allow."""
    years = int(np.ptp(cohort.year)) + 1
    fitting = [overlap for overlap, (width, _) in cohorts.OVERLAPS.items() if width <= years]
    return {overlap: cohorts.windows(cohort, overlap) for overlap in fitting}
