"""A user's table cut into windows of time, one task each: what `lbo tune` reads.

Rows are sorted by time. Windows begin with the first time there is, so that rows added later leave the windows before
them as they were; rows after the last full window wait for the next run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lbo.errors import LboError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

FOLDS = 5
MOST_CLASSES = 20
MOST_WINDOWS = 1000
_UNITS = {"y": "years", "m": "months", "d": "days"}


class TableError(LboError, ValueError):
    """A table that cannot be tuned on."""


class Span(NamedTuple):
    """A length of time."""

    length: int
    unit: str  # "y", "m", "d"; "y" also stands for the numbers of a column that has no dates

    @staticmethod
    def parse(text: str, option: str) -> Span:
        """`4`, `4y`, `6m` or `30d`."""
        match = re.fullmatch(r"([1-9]\d*)([ymd]?)", text.strip())
        if match is None:
            raise TableError(
                f"{option} is a number of years, or of whatever the time column counts, such as 4, or months or days "
                f"such as 6m or 30d, but got {text!r}."
            )
        return Span(int(match[1]), match[2] or "y")


@dataclass(frozen=True, eq=False)
class Window:
    """One task: the rows of some times."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.int64]  # classes 0, 1, ...


@dataclass(frozen=True, eq=False)
class _Clock:
    """A column of times as whole numbers, and how to write one."""

    ticks: NDArray[np.int64]
    write: Callable[[int], str]
    separator: str

    def name(self, first: int, last: int) -> str:
        return self.write(first) if first == last else self.separator.join([self.write(first), self.write(last)])


def read(path: Path) -> pd.DataFrame:
    """A CSV or Parquet file as a table."""
    pandas = _pandas()
    readers = {".csv": pandas.read_csv, ".parquet": pandas.read_parquet}
    if path.suffix.lower() not in readers:
        raise TableError(f"A table is a .csv or .parquet file, but {path} is neither. Save it as one of them.")
    if not path.is_file():
        raise TableError(f"There is no file {path}. Check its name, or run lbo where it is.")
    try:
        frame: pd.DataFrame = readers[path.suffix.lower()](path)
    except pandas.errors.EmptyDataError:
        frame = pandas.DataFrame()
    except ImportError as error:
        raise MissingExtra("pyarrow", "data") from error
    except (ValueError, OSError) as error:  # a parser's errors are ValueErrors
        reason = " ".join(str(error).split()).rstrip(".")
        raise TableError(f"{path} does not read as a table: {reason}. Save it again as CSV or Parquet.") from error
    if frame.empty:
        raise TableError(f"{path} has no rows. Check that the export that wrote it found any data.")
    return frame


def cut(
    frame: pd.DataFrame, *, target: str, time: str, window: Span, step: Span, drop: Sequence[str] = ()
) -> tuple[list[Window], list[str]]:
    """The windows of a table, oldest first, and what was done to it on the way, in sentences for the user."""
    _check_columns(frame, target, time, drop)
    if window.unit != step.unit:
        raise TableError(
            f"--window and --step have one unit, but these are in {_UNITS[window.unit]} and {_UNITS[step.unit]}. "
            f"Write both in the smaller one."
        )
    frame, notes = _labelled(frame, target)
    clock = _clock(frame[time], window.unit)
    if (np.diff(clock.ticks) < 0).any():
        notes.append(f"Rows were not in the order of {time!r}; they were sorted, and there is nothing to do.")
    y = _classes(frame[target])
    X = _features(frame.drop(columns=[target, time, *drop]))
    windows = [
        _window(clock.name(first, first + window.length - 1), X, y, _rows(clock.ticks, first, window.length))
        for first in _starts(clock, window, step)
    ]
    notes += _left_out(clock, window, step)
    return windows, notes


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("pandas", "sklearn") from error
    return pandas


def _check_columns(frame: pd.DataFrame, target: str, time: str, drop: Sequence[str]) -> None:
    for option, name in [("--target", target), ("--time", time), *(("--drop", name) for name in drop)]:
        if name not in frame.columns:
            known = ", ".join(str(column) for column in frame.columns)
            raise TableError(
                f"{option} names a column of the table, but there is no {name!r}. Its columns are: {known}."
            )
    if target == time or {target, time} & set(drop):
        raise TableError("--target, --time and --drop name different columns. Change one of them.")
    if not set(frame.columns) - {target, time, *drop}:
        raise TableError(
            "A table has columns to predict from, but this one has none beside --target, --time and --drop. Add some."
        )


# Times


def _clock(times: pd.Series, unit: str) -> _Clock:
    pandas = _pandas()
    if pandas.api.types.is_numeric_dtype(times.dtype):
        return _number_clock(times, unit)
    dates = pandas.to_datetime(times, errors="coerce", format="mixed", utc=True)
    _refuse(times, dates.isna(), "dates such as 2019-03-31 or whole numbers such as 2019")
    if unit == "y":
        return _Clock(dates.dt.year.to_numpy(np.int64), str, "-")
    if unit == "m":
        months = (dates.dt.year * 12 + dates.dt.month - 1).to_numpy(np.int64)
        return _Clock(months, lambda month: f"{month // 12}-{month % 12 + 1:02d}", " to ")
    days = dates.dt.tz_localize(None).to_numpy("datetime64[D]").astype(np.int64)
    return _Clock(days, lambda day: str(np.datetime64(day, "D")), " to ")


def _number_clock(times: pd.Series, unit: str) -> _Clock:
    numbers = times.to_numpy(float, na_value=np.nan)
    _refuse(times, ~(np.isfinite(numbers) & (numbers == np.round(numbers))), "whole numbers such as 2019 or dates")
    if unit != "y":
        raise TableError(
            f"Months and days need a column of dates, but {times.name!r} has numbers. Give --window and --step as "
            f"plain numbers of what it counts."
        )
    return _Clock(numbers.astype(np.int64), str, "-")


def _refuse(times: pd.Series, wrong: Any, rule: str) -> None:
    if wrong.any():
        raise TableError(
            f"The time column {times.name!r} holds {rule}, but {int(wrong.sum())} of {len(times)} rows do not, the "
            f"first being '{times[wrong].iloc[0]}'. Repair or remove them."
        )


def _starts(clock: _Clock, window: Span, step: Span) -> range:
    first, last = int(clock.ticks.min()), int(clock.ticks.max())
    starts = range(first, last - window.length + 2, step.length)
    if not starts:
        raise TableError(
            f"A window is {window.length} long, but times are only {clock.name(first, last)}. Use a smaller --window."
        )
    if len(starts) > MOST_WINDOWS:
        raise TableError(
            f"At most {MOST_WINDOWS} windows are tuned, but from {clock.name(first, last)} there are {len(starts)}. "
            f"Use a larger --step, or a time column of years or dates."
        )
    return starts


def _rows(ticks: NDArray[np.int64], first: int, length: int) -> NDArray[np.int64]:
    """Where the rows of a window are, oldest first."""
    inside = np.flatnonzero((ticks >= first) & (ticks < first + length))
    return inside[np.argsort(ticks[inside], kind="stable")]


def _left_out(clock: _Clock, window: Span, step: Span) -> Iterator[str]:
    starts = _starts(clock, window, step)
    end = starts[-1] + window.length
    waiting = int((clock.ticks >= end).sum())
    if waiting:
        yield f"{waiting} rows from {clock.write(end)} on are in no full window yet; they wait for more."


# Targets and features


def _labelled(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows whose target is known."""
    missing = frame[target].isna()
    if not missing.any():
        return frame, []
    if missing.all():
        raise TableError(f"The target {target!r} is empty in every row. Choose another --target.")
    return frame[~missing], [f"{int(missing.sum())} rows without a value of {target!r} were left out."]


def _classes(column: pd.Series) -> NDArray[np.int64]:
    types = _pandas().api.types
    if not (types.is_numeric_dtype(column.dtype) or types.is_bool_dtype(column.dtype)):
        found = ", ".join(repr(value) for value in column.unique()[:3])
        raise TableError(f"The target is a column of numbers, but {column.name!r} holds {found}. Recode it as 0 and 1.")
    values: NDArray[np.float64] = column.to_numpy(float)
    classes = np.unique(values)
    if len(classes) == 1:
        raise TableError(
            f"The target has two classes or more, but {column.name!r} is {classes[0]:g} in every row. Choose another "
            f"--target, or add rows of another class."
        )
    if len(classes) > MOST_CLASSES or not np.array_equal(classes, np.arange(len(classes))):
        raise TableError(
            f"The target's classes are 0, 1 and so on, at most {MOST_CLASSES}, but {column.name!r} has {len(classes)} "
            f"different values from {classes[0]:.4g} to {classes[-1]:.4g}. Recode them as classes: amounts cannot be "
            f"tuned for here."
        )
    return values.astype(np.int64)


def _features(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as floats, infinite ones as missing; everything else as text."""
    pandas = _pandas()
    made = {}
    for name in frame.columns:
        column = frame[name]
        if column.isna().all():
            raise TableError(f"Column {name!r} is empty in every row. Leave it out with --drop {name}.")
        if pandas.api.types.is_datetime64_any_dtype(column.dtype):
            raise TableError(
                f"Features are numbers or texts, but {name!r} holds dates. Make numbers of them, an age say, or leave "
                f"it out with --drop {name}."
            )
        if pandas.api.types.is_numeric_dtype(column.dtype):
            numbers = column.to_numpy(float, na_value=np.nan)
            made[str(name)] = np.where(np.isfinite(numbers), numbers, np.nan)
        else:
            made[str(name)] = column.astype(object).map(str, na_action="ignore")
    return pandas.DataFrame(made, index=frame.index)


def _window(name: str, X: pd.DataFrame, y: NDArray[np.int64], rows: NDArray[np.int64]) -> Window:
    if not len(rows):
        raise TableError(f"Window {name} has no rows. Use a larger --window, or remove the rows before the gap.")
    counts = np.bincount(y[rows], minlength=y.max() + 1)
    rarest = int(counts.argmin())
    if counts[rarest] < FOLDS:
        raise TableError(
            f"Every class needs {FOLDS} rows in a window, one per fold of the cross-validation, but window {name} has "
            f"{counts[rarest]} of class {rarest}. Use a larger --window."
        )
    return Window(name, X.iloc[rows].reset_index(drop=True), y[rows])
