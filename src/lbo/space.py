"""Optuna distributions to points of the unit cube and back, for spaces that are conditional and that grow.

P     parameters of the space, in order of their names
U     (n, P)  unit coordinates, one per parameter, each in [0, 1]; NaN where a trial did not have the parameter
X     (n, D)  what models see: a column per number, a column per choice of a categorical, inactive ones imputed
K choices make K columns with one of them at 1/sqrt(2), so that two different choices are a distance 1 apart.

A define-by-run objective never says when a parameter exists, so `Condition`s are read off the trials: a parameter
depends on the most often present discrete parameter whose value decides, without exception so far, whether it is there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
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
    distribution_to_json,
    json_to_distribution,
)

from lbo.errors import SpaceError

Array = NDArray[np.float64]
Params = Mapping[str, Any]
Distributions = Mapping[str, BaseDistribution]

IMPUTED = 0.5  # the coordinate of a number that is not there: the middle, as near as can be to every value
ONE_HOT = math.sqrt(0.5)


@dataclass(frozen=True)
class Condition:
    """The parameter exists where `parent` has one of `choices` (categorical) or lies in [low, high] (integer)."""

    parent: str
    choices: tuple[Any, ...] = ()
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Axis:
    """One parameter: its name, the distribution that frames its coordinate, and where the search may go."""

    name: str
    frame: BaseDistribution
    latest: BaseDistribution

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        return tuple(self.frame.choices) if isinstance(self.frame, CategoricalDistribution) else ()

    @cached_property
    def cells(self) -> int:
        """How many values the frame has; 0 for a continuum."""
        match self.frame:
            case CategoricalDistribution():
                return len(self.frame.choices)
            case IntDistribution():
                return (self.frame.high - self.frame.low) // self.frame.step + 1
            case FloatDistribution(step=float(step)):
                return round((self.frame.high - self.frame.low) / step) + 1
            case _:
                return int(self.frame.single())

    @cached_property
    def width(self) -> int:
        """How many columns of X it takes; a parameter that cannot vary takes none."""
        return 0 if self.cells == 1 else len(self.choices) or 1

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The unit interval that the latest distribution allows."""
        if isinstance(self.latest, CategoricalDistribution):
            return 0.0, 1.0
        low, high = self.to_unit([self.latest.low, self.latest.high])  # type: ignore[attr-defined]
        return float(low), float(high)

    def to_unit(self, values: Sequence[Any]) -> Array:
        """Unit coordinates of values; NaN stays NaN only for numbers that are NaN themselves."""
        frame = self.frame
        if self.cells == 1:
            return np.full(len(values), IMPUTED)
        if isinstance(frame, CategoricalDistribution):
            return (np.array([frame.to_internal_repr(value) for value in values], dtype=float) + 0.5) / self.cells
        low, high = _ends(frame)
        v = np.array(values, dtype=float)
        if frame.log:  # type: ignore[attr-defined]
            v, low, high = np.log(v), math.log(low), math.log(high)
        # Halved first: the difference of two finite numbers may overflow, that of their halves cannot.
        u: Array = (v / 2 - low / 2) / (high / 2 - low / 2)
        return np.clip(u, 0.0, 1.0)

    def from_unit(self, u: float) -> Any:
        """The value of the latest distribution at (or next to) a coordinate."""
        frame = self.frame
        if isinstance(frame, CategoricalDistribution):
            return frame.choices[min(int(u * self.cells), self.cells - 1)]
        low, high = _ends(frame)
        if frame.log:  # type: ignore[attr-defined]
            low, high = math.log(low), math.log(high)
        value = (low * (1 - u)) + high * u
        if frame.log:  # type: ignore[attr-defined]
            value = math.exp(value)
        return _nearest(self.latest, value)

    def snap(self, u: Array) -> Array:
        """The coordinates of the values that the latest distribution has nearest to u."""
        low, high = self.bounds
        u = np.clip(u, low, high)
        if not self.cells:
            return u
        if isinstance(self.frame, CategoricalDistribution):
            return (np.minimum(np.floor(u * self.cells), self.cells - 1) + 0.5) / self.cells
        return self.to_unit([self.from_unit(float(x)) for x in u])


def _ends(frame: BaseDistribution) -> tuple[float, float]:
    """Where a number's unit interval begins and ends: grids reach half a step beyond their outer values."""
    low, high = float(frame.low), float(frame.high)  # type: ignore[attr-defined]
    half = (frame.step or 0.0) / 2  # type: ignore[attr-defined]
    return low - half, high + half


def _nearest(distribution: BaseDistribution, value: float) -> int | float:
    low, high, step = distribution.low, distribution.high, distribution.step  # type: ignore[attr-defined]
    if step is not None:
        k = math.floor((value - low) / step + 0.5)
        value = low + max(0, min(k, round((high - low) / step))) * step
    value = min(max(value, low), high)
    return int(value) if isinstance(distribution, IntDistribution) else float(value)


@dataclass(frozen=True)
class Space:
    """The joint space of all parameters seen, with what is known of when each exists."""

    axes: tuple[Axis, ...]
    conditions: tuple[tuple[str, Condition], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @cached_property
    def index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def columns(self) -> tuple[tuple[str, Any], ...]:
        """(parameter, choice) of every column of X; choice is None for numbers."""
        return tuple(
            (axis.name, axis.choices[k] if axis.choices else None)
            for axis in self.axes
            for k in range(axis.width)
        )

    @cached_property
    def column_axis(self) -> NDArray[np.intp]:
        """(D,) which parameter each column of X belongs to."""
        return np.repeat(np.arange(len(self.axes)), [axis.width for axis in self.axes])

    @cached_property
    def size(self) -> float:
        """How many different configurations there are at the most; infinite with a continuous parameter."""
        return math.prod((axis.cells or math.inf) for axis in self.axes) if self.axes else 1

    def to_unit(self, configurations: Sequence[Params]) -> Array:
        """U of configurations; NaN where one lacks a parameter."""
        U = np.full((len(configurations), len(self.axes)), np.nan)
        for j, axis in enumerate(self.axes):
            rows = [i for i, params in enumerate(configurations) if axis.name in params]
            if rows:
                U[rows, j] = axis.to_unit([configurations[i][axis.name] for i in rows])
        return U

    def from_unit(self, u: Array) -> dict[str, Any]:
        """A value for every parameter, the inactive ones too: only the objective knows which it will ask for."""
        return {axis.name: axis.from_unit(IMPUTED if math.isnan(x) else float(x))
                for axis, x in zip(self.axes, u, strict=True)}  # fmt: skip

    def encode(self, U: Array) -> Array:
        """X of unit coordinates, NaN imputed."""
        X = np.empty((len(U), len(self.column_axis)))
        start = 0
        for j, axis in enumerate(self.axes):
            u, stop = U[:, j], start + axis.width
            if axis.width and axis.choices:
                k = np.where(np.isnan(u), -1, np.minimum(np.nan_to_num(u) * axis.cells, axis.cells - 1).astype(int))
                X[:, start:stop] = ONE_HOT * (k[:, None] == np.arange(axis.cells))
            elif axis.width:
                X[:, start] = np.where(np.isnan(u), IMPUTED, u)
            start = stop
        return X

    def active(self, U: Array) -> NDArray[np.bool_]:
        """(n, P) which parameters a configuration at U would have, as far as the conditions know."""
        there = ~np.isnan(U)
        rules = [(self.index[name], rule) for name, rule in self.conditions]
        for _ in rules:  # parents may be conditional themselves; a chain is at most this long
            before = there.copy()
            for j, rule in rules:
                parent = self.index[rule.parent]
                there[:, j] &= there[:, parent] & self._holds(rule, self.axes[parent], U[:, parent])
            if np.array_equal(before, there):
                break
        return there

    def _holds(self, rule: Condition, parent: Axis, u: Array) -> NDArray[np.bool_]:
        if parent.choices:
            allowed = np.array([any(_same(c, choice) for c in rule.choices) for choice in parent.choices])
            cell = np.minimum(np.nan_to_num(u) * parent.cells, parent.cells - 1).astype(int)
            return np.asarray(allowed[cell])
        low, high = (-math.inf if math.isinf(rule.low) else parent.to_unit([rule.low])[0],
                     math.inf if math.isinf(rule.high) else parent.to_unit([rule.high])[0])  # fmt: skip
        slack = 1e-9  # a value on the threshold itself is inside
        return np.asarray((u >= low - slack) & (u <= high + slack))

    def snap(self, U: Array) -> Array:
        """U moved onto values that exist, inactive coordinates NaN: equal rows are the same configuration."""
        snapped = np.column_stack([axis.snap(U[:, j]) for j, axis in enumerate(self.axes)])
        return np.where(self.active(snapped), snapped, np.nan)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """n uniform configurations, snapped."""
        return self.snap(rng.random((n, len(self.axes))) * self._span + self._low)

    def grid(self) -> Array:
        """Every configuration of a finite space once, snapped."""
        cells = [np.unique(axis.snap((np.arange(axis.cells) + 0.5) / axis.cells)) for axis in self.axes]
        U = np.stack(np.meshgrid(*cells, indexing="ij"), axis=-1).reshape(-1, len(self.axes))
        return np.unique(self.snap(U), axis=0, equal_nan=True)  # type: ignore[call-overload, no-any-return]

    @cached_property
    def _low(self) -> Array:
        return np.array([axis.bounds[0] for axis in self.axes])

    @cached_property
    def _span(self) -> Array:
        return np.array([axis.bounds[1] - axis.bounds[0] for axis in self.axes])

    def only(self, names: Iterable[str]) -> Space:
        """The same space without the other parameters, and without the conditions that need them."""
        keep = set(names)
        conditions = tuple((n, c) for n, c in self.conditions if n in keep and c.parent in keep)
        return Space(tuple(axis for axis in self.axes if axis.name in keep), conditions)

    def to_json(self) -> dict[str, Any]:
        return {
            "parameters": {axis.name: json.loads(distribution_to_json(axis.frame)) for axis in self.axes},
            "conditions": [
                [name, c.parent, list(c.choices), None if math.isinf(c.low) else c.low,
                 None if math.isinf(c.high) else c.high]
                for name, c in self.conditions
            ],
        }  # fmt: skip

    @staticmethod
    def from_json(record: dict[str, Any]) -> Space:
        frames = {name: json_to_distribution(json.dumps(d)) for name, d in record["parameters"].items()}
        conditions = tuple(
            (name, Condition(parent, tuple(choices), -math.inf if low is None else low,
                             math.inf if high is None else high))
            for name, parent, choices, low, high in record["conditions"]
        )  # fmt: skip
        return Space(tuple(Axis(name, frames[name], frames[name]) for name in sorted(frames)), conditions)


def learn_space(
    configurations: Sequence[Params],
    distributions: Sequence[Distributions],
    past: Space | None = None,
    *,
    keep_dropped: bool = False,
) -> Space:
    """The space of a task: what its trials (oldest first) have shown, and what the past knew beyond that.

    A parameter of the past that this task has not asked for stays, since its branch may not have been visited yet,
    unless a trial was there where the past says it must exist: then it has been dropped. Memory keeps even those,
    for a later task that takes them up again.
    """
    own = _seen_axes(distributions)
    past = past or Space(())
    for axis in past.axes:
        if axis.name in own:
            check_kind(axis.name, axis.frame, own[axis.name].frame)
    unseen = {axis.name: axis for axis in past.axes if axis.name not in own}
    axes = tuple(axis for _, axis in sorted({**unseen, **own}.items()))
    inherited = {name: rule for name, rule in past.conditions if rule.parent in {axis.name for axis in axes}}
    space = Space(axes, tuple(sorted(inherited.items())))
    U = space.to_unit(configurations)

    conditions = {}
    dropped = set()
    for j, axis in enumerate(space.axes):
        expected = space.active(_with_column(U, j, IMPUTED))[:, j]
        if axis.name in unseen and expected.any():
            dropped.add(axis.name)
        rule = _condition(space, U, j, inherited.get(axis.name), expected)
        if rule is not None:
            conditions[axis.name] = rule
    whole = Space(axes, tuple(sorted(conditions.items())))
    return whole if keep_dropped else whole.only(set(space.names) - dropped)


def _seen_axes(distributions: Sequence[Distributions]) -> dict[str, Axis]:
    axes: dict[str, Axis] = {}
    for seen in distributions:
        for name, latest in seen.items():
            old = axes.get(name)
            if old is None:
                axes[name] = Axis(name, latest, latest)
            elif old.latest is not latest and old.latest != latest:
                axes[name] = Axis(name, _union(name, old.frame, latest), latest)
    return axes


def _with_column(U: Array, j: int, value: float) -> Array:
    filled = U.copy()
    filled[:, j] = value
    return filled


def _condition(
    space: Space, U: Array, j: int, past: Condition | None, expected: NDArray[np.bool_]
) -> Condition | None:
    """When parameter j exists: what this task's trials say, completed by what the past says."""
    there = ~np.isnan(U[:, j])
    learned = _learn_condition(space, U, there)
    if learned is None:
        return past if np.array_equal(expected, there) or not there.any() else None
    if past is None or past.parent != learned.parent or not learned.choices:
        return learned
    only_past = tuple(c for c in past.choices if not any(_same(c, d) for d in learned.choices))
    return Condition(learned.parent, learned.choices + only_past)


def _learn_condition(space: Space, U: Array, there: NDArray[np.bool_]) -> Condition | None:
    if there.all() or not there.any():
        return None
    presence = (~np.isnan(U)).sum(axis=0)
    # Categorical parents first, then whatever is there most often: the root of a branch rather than its leaves.
    # A parent is there more often than its child, so conditions never go round in circles.
    parents = [i for i, axis in enumerate(space.axes) if axis.cells > 1 and presence[i] > there.sum()]
    parents.sort(key=lambda i: (not space.axes[i].choices, -presence[i], i))
    rules = (_separate(space.axes[i], U[there, i], U[~there, i]) for i in parents)
    return next((rule for rule in rules if rule is not None), None)


def _separate(parent: Axis, with_it: Array, without: Array) -> Condition | None:
    """The condition on a parent's value that holds wherever the parameter was seen and nowhere where it was not."""
    without = without[~np.isnan(without)]
    if np.isnan(with_it).any() or np.intersect1d(with_it, without).size:
        return None
    if parent.choices:
        return Condition(parent.name, tuple(parent.from_unit(float(u)) for u in np.unique(with_it)))
    if not without.size:
        return Condition(parent.name)
    if with_it.min() > without.max():
        return Condition(parent.name, low=parent.from_unit(float(with_it.min())))
    if with_it.max() < without.min():
        return Condition(parent.name, high=parent.from_unit(float(with_it.max())))
    return None


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def check_kind(name: str, old: BaseDistribution, new: BaseDistribution) -> None:
    """Refuse a parameter that was a number of one kind, or a choice, and is now another."""
    if type(old) is not type(new):
        raise SpaceError(
            f"A parameter keeps its type within a stream, but {name!r} was {old} and is now {new}. "
            f"Give the new one another name, or start another stream."
        )


def _union(name: str, old: BaseDistribution, new: BaseDistribution) -> BaseDistribution:
    """The smallest frame that holds both; scale and step are those of the newer one."""
    check_kind(name, old, new)
    if isinstance(new, CategoricalDistribution) and isinstance(old, CategoricalDistribution):
        extra = [c for c in old.choices if not any(_same(c, d) for d in new.choices)]
        return CategoricalDistribution([*new.choices, *extra]) if extra else new
    low, high, step = min(old.low, new.low), max(old.high, new.high), new.step  # type: ignore[attr-defined]
    if new.log and low <= 0:  # type: ignore[attr-defined]
        low = new.low  # type: ignore[attr-defined]
    if step is not None:
        low = new.low - math.ceil((new.low - low) / step) * step  # type: ignore[attr-defined]
        high = low + math.ceil((high - low) / step - 1e-9) * step
    kind = FloatDistribution if isinstance(new, FloatDistribution) else IntDistribution
    return kind(low, high, log=new.log, step=step)  # type: ignore[attr-defined, arg-type]


def frame_map(old: Space, new: Space) -> tuple[Array, Array]:
    """A (D_new, D_old), b (D_old,) with X_old = X_new A + b: the same configurations in another space's columns.

    Ranges that widened or narrowed are stretched exactly. What only `new` has is ignored; what only `old` has is
    imputed there, as it is in a trial that lacks it. A number whose scale changed (log or not) counts as another one.
    """
    new_columns = {column: i for i, column in enumerate(_column_keys(new))}
    A = np.zeros((len(new.columns), len(old.columns)))
    b = np.zeros(len(old.columns))
    for j, key in enumerate(_column_keys(old)):
        i = new_columns.get(key)
        name, choice = old.columns[j]
        if choice is not None:
            if i is not None:
                A[i, j] = 1.0
            continue
        b[j] = IMPUTED
        if i is not None:
            stretch = _stretch(old.axes[old.index[name]].frame, new.axes[new.index[name]].frame)
            if stretch is not None:
                A[i, j], b[j] = stretch
    return A, b


def _column_keys(space: Space) -> list[tuple[str, str, str]]:
    # Choices are told apart by type as well as by value: True, 1 and 1.0 are equal and hash alike.
    return [(name, type(choice).__name__, repr(choice)) for name, choice in space.columns]


def _stretch(old: BaseDistribution, new: BaseDistribution) -> tuple[float, float] | None:
    """slope and offset of a number's old unit coordinate as a function of its new one."""
    if old.log != new.log:  # type: ignore[attr-defined]
        return None
    (old_low, old_high), (new_low, new_high) = _ends(old), _ends(new)
    if new.log:  # type: ignore[attr-defined]
        old_low, old_high, new_low, new_high = (math.log(x) for x in (old_low, old_high, new_low, new_high))
    span = old_high / 2 - old_low / 2
    return (new_high / 2 - new_low / 2) / span, (new_low / 2 - old_low / 2) / span
