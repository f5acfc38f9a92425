"""One parameter: the values of an Optuna distribution as coordinates of the unit interval, and back.

u     ()   coordinate in [0, 1]; NaN where a configuration lacks the parameter
cells ()   how many values there are; each has a cell of the interval to itself and sits in its middle

Choices and steps cut the interval into cells of equal width. A log-scaled integer v has the cell between the
logarithms of v - 1/2 and v + 1/2. A continuum has no cells; a grid too fine for doubles to count is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lbo.errors import SpaceError

Array = NDArray[np.float64]
Number = FloatDistribution | IntDistribution

MIDDLE = 0.5  # the coordinate of a number that is not there: as near as can be to every value
FINEST = 2**52  # cells that a double in [0, 1] can tell apart
FINEST_LOG = 2**40  # the largest integer that its logarithm in [0, 1] still names


@dataclass(frozen=True)
class Axis:
    """A parameter's name, the distribution that frames its coordinate, and the one the search may go to.

    Where ranges have changed, `frame` holds all of them, on the grid of `latest`.
    """

    name: str
    frame: BaseDistribution
    latest: BaseDistribution

    def __post_init__(self) -> None:
        if not isinstance(self.frame, CategoricalDistribution | FloatDistribution | IntDistribution):
            raise SpaceError(
                f"lbo searches float, int and categorical parameters, but {self.name!r} has a "
                f"{type(self.frame).__name__}. Use trial.suggest_float, suggest_int or suggest_categorical."
            )

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        """Those of a categorical; none for a number."""
        return tuple(self.frame.choices) if isinstance(self.frame, CategoricalDistribution) else ()

    @cached_property
    def log(self) -> bool:
        """Whether the coordinate is logarithmic."""
        # Over less than a thousandth a logarithm is a straight line, and doubles lose what it tells apart.
        return not self.choices and self._frame.log and self._frame.high / self._frame.low > 1.001

    @cached_property
    def cells(self) -> int:
        """How many values the frame has; 0 for a continuum."""
        if self.choices:
            return len(self.choices)
        if self.frame.single():
            return 1
        if self._frame.step is None or (self.log and self._frame.high > FINEST_LOG):
            return 0
        last = float(_index(self._frame, [self._frame.high])[0])
        return round(last) + 1 if last < FINEST else 0

    @cached_property
    def width(self) -> int:
        """How many columns of X it takes; a parameter that cannot vary takes none."""
        return 0 if self.cells == 1 else len(self.choices) or 1

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The unit interval that the latest distribution allows."""
        if self.choices:
            return 0.0, 1.0
        low, high = self.to_unit([self._latest.low, self._latest.high])
        return float(low), float(high)

    def to_unit(self, values: Sequence[Any]) -> Array:
        """Coordinates of values; a number beyond the frame goes to its nearer end, an unknown choice to NaN."""
        if self.cells == 1:
            return np.full(len(values), MIDDLE)
        if self.choices:
            return self._middle(np.array([self._choice_index(value) for value in values], dtype=float))
        if not self.log and self.cells:
            u = self._middle(_index(self._frame, values))
        else:
            low, high = self._ends
            v = np.clip(np.array(values, dtype=float), self._frame.low, self._frame.high)
            u = _share(np.log(v) if self.log else v, low, high)
        return np.clip(u, 0.0, 1.0)

    def from_unit(self, u: float) -> Any:
        """The value of the latest distribution at (or next to) a coordinate."""
        if self.choices:
            return self.choices[min(int(u * self.cells), self.cells - 1)]
        latest = self._latest
        if not self.log and self.cells > 1:
            return _value(latest, math.floor(u * self.cells) - self._first_cell)
        low, high = self._ends
        v = low * (1 - u) + high * u
        v = min(max(math.exp(v) if self.log else v, latest.low), latest.high)
        return v if latest.step is None else _value(latest, round(_index(latest, [v])[0]))

    def snap(self, u: Array) -> Array:
        """The coordinates of the values that the latest distribution has nearest to u; NaN stays NaN."""
        u = np.clip(u, *self.bounds)
        if self.log and self._frame.step is not None:
            low, high = self._ends
            v = np.exp(low * (1 - u) + high * u)
            return np.where(v > FINEST_LOG, u, self.to_unit(np.rint(v)))  # type: ignore[arg-type]
        if not self.cells:
            return u
        if self.choices:
            return self._middle(np.append(self._recorded, np.nan)[self.cell_of(u)])
        return self._middle(np.minimum(np.floor(u * self.cells), self.cells - 1))

    def cell_of(self, u: Array) -> NDArray[np.intp]:
        """Which choice each coordinate stands for; -1 where it is NaN."""
        return np.where(np.isnan(u), -1.0, np.minimum(u * self.cells, self.cells - 1)).astype(np.intp)

    def every(self) -> Array:
        """The coordinates of all values that the latest distribution has, if they can be counted."""
        if self.choices:
            return np.unique(self._middle(self._recorded))
        if self.latest.single():
            return np.array([self.bounds[0]])
        last = round(float(_index(self._latest, [self._latest.high])[0]))
        return self.to_unit([_value(self._latest, k) for k in range(last + 1)])

    def _middle(self, cell: Array) -> Array:
        return np.asarray((cell + 0.5) / self.cells)

    @property
    def _frame(self) -> Number:
        assert isinstance(self.frame, Number)
        return self.frame

    @property
    def _latest(self) -> Number:
        assert isinstance(self.latest, Number)
        return self.latest

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """Where a continuum or a log-scaled number begins and ends, on the scale that is linear in u."""
        low, high = float(self._frame.low), float(self._frame.high)
        if not self.log:
            return low, high
        half = (self._frame.step or 0) / 2
        return math.log(low - half), math.log(high + half)

    @cached_property
    def _first_cell(self) -> int:
        """The cell of the latest distribution's lowest value."""
        return round(float(_index(self._frame, [self._latest.low])[0]))

    @cached_property
    def _cell_of_choice(self) -> dict[tuple[str, str], int]:
        return {choice_key(choice): k for k, choice in reversed(list(enumerate(self.choices)))}

    def _choice_index(self, value: Any) -> float:
        k = self._cell_of_choice.get(choice_key(value))
        if k is not None:
            return k
        try:
            return self.frame.to_internal_repr(value)
        except ValueError:  # not one of the choices
            return math.nan

    @cached_property
    def _recorded(self) -> Array:
        """(cells,) the choice that Optuna records for each: of equal ones (True, 1, 1.0) always the first."""
        return np.array([self.frame.to_internal_repr(choice) for choice in self.choices], dtype=float)


def choice_key(choice: Any) -> tuple[str, str]:
    """What tells choices apart: True, 1 and 1.0 are equal and hash alike, and NaN is not equal to itself."""
    plain = choice.item() if isinstance(choice, np.generic) else choice
    return type(plain).__name__, repr(plain)


def _index(distribution: Number, values: Sequence[Any]) -> Array:
    """How many steps above the lowest value each one is."""
    low, high, step = distribution.low, distribution.high, distribution.step
    assert step is not None
    if isinstance(distribution, IntDistribution):
        # Differences of Python's integers: a double would round those beyond 2^53 first.
        return np.array([(value - low) / step for value in values])
    half = _half(low, high)
    v = np.clip(np.array(values, dtype=float), low, high)
    return np.asarray((v * half - low * half) / step / half)


def _value(distribution: Number, k: int) -> int | float:
    """The value k steps above the lowest, or the nearest one that there is."""
    low, high, step = distribution.low, distribution.high, distribution.step
    assert step is not None
    if isinstance(distribution, IntDistribution):
        return int(min(max(low + k * step, low), high))
    half = _half(low, high)
    return float(min(max((low * half + k * (step * half)) / half, low), high))


def _share(v: Array, low: float, high: float) -> Array:
    """Which part of the way from low to high each v is."""
    half = _half(low, high)
    return np.asarray((v * half - low * half) / (high * half - low * half))


def _half(low: float, high: float) -> float:
    """What to scale by so that high - low, which may exceed the largest double, does not overflow."""
    return 0.5 if math.isinf(float(high) - float(low)) else 1.0
