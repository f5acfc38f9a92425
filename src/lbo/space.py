"""The joint space of all parameters as points of the unit cube, and as what models see.

P     parameters of the space, in order of their names
U     (n, P)  unit coordinates, one per parameter, each in [0, 1]; NaN where a trial lacks the parameter
X     (n, D)  what models see: a column per number and per choice of a categorical, inactive ones imputed
K choices make K columns with one of them at 1/sqrt(2), so that two different choices are a distance 1 apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)

from lbo.axis import MIDDLE, Array, Axis, choice_key

__all__ = ["Array", "Axis", "Condition", "Params", "Space", "frame_map"]

Params = Mapping[str, Any]
Bools = NDArray[np.bool_]

ONE_HOT = math.sqrt(0.5)


@dataclass(frozen=True)
class Condition:
    """A parameter exists where `parent` is one of `choices` (categorical) or in [low, high] (integer)."""

    parent: str
    choices: tuple[Any, ...] = ()
    low: float = -math.inf
    high: float = math.inf

    def test(self, parent: Axis) -> Callable[[Array], Bools]:
        """Whether it holds at each coordinate of the parent; False where the parent is not there."""
        if parent.choices:
            keys = {choice_key(choice) for choice in self.choices}
            allowed = np.array([*(choice_key(choice) in keys for choice in parent.choices), False])
            return partial(_is_allowed, parent, allowed)
        slack = 1e-12  # a value on the threshold itself is inside, whatever the rounding
        low, high = _coordinate(parent, self.low) - slack, _coordinate(parent, self.high) + slack
        return partial(_is_within, low, high)


def _is_allowed(axis: Axis, allowed: Bools, u: Array) -> Bools:
    return np.asarray(allowed[axis.cell_of(u)])


def _is_within(low: float, high: float, u: Array) -> Bools:
    return np.asarray((u >= low) & (u <= high))


def _coordinate(axis: Axis, x: float) -> float:
    """The coordinate of a threshold, which may be infinite: outside the cube if x is outside the frame."""
    low, high = axis.frame.low, axis.frame.high  # type: ignore[attr-defined]
    return -1.0 if x < low else 2.0 if x > high else float(axis.to_unit([x])[0])


@dataclass(frozen=True)
class Space:
    """The joint space of all parameters seen, with what is known of when each exists."""

    axes: tuple[Axis, ...]
    conditions: tuple[tuple[str, Condition], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @cached_property
    def index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def columns(self) -> tuple[tuple[str, Any], ...]:
        """(parameter, choice) of every column of X; choice is None for numbers."""
        return tuple(
            (axis.name, axis.choices[k] if axis.choices else None) for axis in self.axes for k in range(axis.width)
        )

    @cached_property
    def column_axis(self) -> NDArray[np.intp]:
        """(D,) which parameter each column of X belongs to."""
        return np.repeat(np.arange(len(self.axes)), [axis.width for axis in self.axes])

    @cached_property
    def branching(self) -> Bools:
        """(D,) the columns of choices that other parameters depend on: which algorithm, say."""
        parents = {condition.parent for _, condition in self.conditions if condition.choices}
        return np.array([name in parents for name, _ in self.columns], dtype=bool)

    @cached_property
    def size(self) -> float:
        """How many different configurations there are at the most; infinite with a continuous parameter."""
        return math.prod((axis.cells or math.inf) for axis in self.axes)

    def to_unit(self, configurations: Sequence[Params]) -> Array:
        """U of configurations; NaN where one lacks a parameter, or has a choice that is not there any more."""
        U = np.full((len(configurations), len(self.axes)), np.nan)
        for j, axis in enumerate(self.axes):
            there = np.array([axis.name in params for params in configurations], dtype=bool)
            U[there, j] = axis.to_unit([params[axis.name] for params in configurations if axis.name in params])
        return U

    def from_unit(self, u: Array) -> dict[str, Any]:
        """A value for every parameter, the inactive ones too: only the objective knows which it wants."""
        return {
            axis.name: axis.from_unit(MIDDLE if math.isnan(x) else float(x))
            for axis, x in zip(self.axes, u, strict=True)
        }

    def encode(self, U: Array) -> Array:
        """X of unit coordinates; NaN becomes the middle of a number, none of a categorical's choices."""
        X = np.empty((len(U), len(self.column_axis)))
        start = 0
        for u, axis in zip(U.T, self.axes, strict=True):
            stop = start + axis.width
            if axis.width and axis.choices:
                X[:, start:stop] = ONE_HOT * (axis.cell_of(u)[:, None] == np.arange(axis.cells))
            elif axis.width:
                X[:, start] = np.where(np.isnan(u), MIDDLE, u)
            start = stop
        return X

    def active(self, U: Array) -> Bools:
        """(n, P) which parameters a configuration at U would have, as far as the conditions know."""
        there = ~np.isnan(U)
        for j, parent, holds in self._rules:
            there[:, j] &= holds(U[:, parent])
        for _ in self._rules:  # a parent may be conditional itself; a chain is at most this long
            before = there.copy()
            for j, parent, _ in self._rules:
                there[:, j] &= there[:, parent]
            if np.array_equal(before, there):
                break
        return there

    @cached_property
    def _rules(self) -> list[tuple[int, int, Callable[[Array], Bools]]]:
        """The conditions: a parameter, its parent, and whether it exists at a coordinate of the parent."""
        pairs = [(self.index[name], self.index[rule.parent], rule) for name, rule in self.conditions]
        return [(j, parent, rule.test(self.axes[parent])) for j, parent, rule in pairs]

    def without_inactive(self, U: Array) -> Array:
        """U with NaN for what does not exist there: then equal rows are the same configuration."""
        return np.where(self.active(U), U, np.nan)

    def snap(self, U: Array) -> Array:
        """U moved onto values that the latest distributions have, inactive coordinates NaN."""
        snapped = np.empty_like(U)
        for j, axis in enumerate(self.axes):
            snapped[:, j] = axis.snap(U[:, j])
        return self.without_inactive(snapped)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """n uniform configurations, snapped."""
        low, high = np.array([axis.bounds for axis in self.axes]).T
        return self.snap(low + rng.random((n, len(self.axes))) * (high - low))

    def grid(self) -> Array:
        """Every configuration of a finite space at least once, snapped."""
        U = np.stack(np.meshgrid(*(axis.every() for axis in self.axes), indexing="ij"), axis=-1)
        return self.without_inactive(U.reshape(-1, len(self.axes)))

    def only(self, names: Iterable[str]) -> Space:
        """The same space without the other parameters, and without the conditions that need them."""
        keep = set(names)
        conditions = tuple((n, c) for n, c in self.conditions if n in keep and c.parent in keep)
        return Space(tuple(axis for axis in self.axes if axis.name in keep), conditions)

    def to_json(self) -> dict[str, Any]:
        """Frames and conditions as plain data: nothing of where the search may go."""
        return {
            "parameters": {axis.name: json.loads(distribution_to_json(axis.frame)) for axis in self.axes},
            "conditions": [
                [name, c.parent, list(c.choices), *(None if math.isinf(x) else x for x in (c.low, c.high))]
                for name, c in self.conditions
            ],
        }

    @staticmethod
    def from_json(record: dict[str, Any]) -> Space:
        frames = {name: json_to_distribution(json.dumps(d)) for name, d in record["parameters"].items()}
        conditions = tuple(
            (
                name,
                Condition(
                    parent,
                    tuple(choices),
                    -math.inf if low is None else low,
                    math.inf if high is None else high,
                ),
            )
            for name, parent, choices, low, high in record["conditions"]
        )
        return Space(tuple(Axis(name, frames[name], frames[name]) for name in sorted(frames)), conditions)


def frame_map(old: Space, new: Space) -> tuple[Array, Array]:
    """A (D_new, D_old), b (D_old,) with X_old = X_new A + b: the same configurations in old columns.

    Ranges that widened or narrowed are stretched exactly. What only `new` has is ignored; what only `old` has
    is imputed, as it is in a trial that lacks it. A number whose scale changed (log or not) is another one.
    """
    A = np.zeros((len(new.column_axis), len(old.column_axis)))
    b = np.zeros(len(old.column_axis))
    for j, axis in enumerate(old.axes):
        columns = np.flatnonzero(old.column_axis == j)
        i = new.index.get(axis.name)
        if i is None:
            b[columns] = 0.0 if axis.choices else MIDDLE
        elif len(columns):
            rows = np.flatnonzero(new.column_axis == i)
            A[np.ix_(rows, columns)], b[columns] = _axis_map(axis, new.axes[i])
    return A, b


def _axis_map(old: Axis, new: Axis) -> tuple[Array, Array]:
    """The block of A and the part of b that belong to one parameter which both have."""
    slopes, offsets = np.zeros((new.width, old.width)), np.zeros(old.width)
    if new.cells == 1:
        only_value = old.to_unit([new.from_unit(MIDDLE)])
        return slopes, Space((old,)).encode(only_value[None])[0]
    if old.choices:
        old_keys, new_keys = ([choice_key(c) for c in axis.choices] for axis in (old, new))
        return np.array([[float(o == n) for o in old_keys] for n in new_keys]), offsets
    slopes[:], offsets[:] = _stretch(old, new) or (0.0, MIDDLE)
    return slopes, offsets


def _stretch(old: Axis, new: Axis) -> tuple[float, float] | None:
    """Slope and offset of a number's old unit coordinate as a function of its new one, if it is one."""
    if old.log != new.log:
        return None
    (old_low, old_high), (new_low, new_high) = _exact_ends(old), _exact_ends(new)
    span = old_high - old_low
    try:
        return float((new_high - new_low) / span), float((new_low - old_low) / span)
    except OverflowError:  # ranges of such different sizes have nothing to tell each other
        return None


def _exact_ends(axis: Axis) -> tuple[Fraction, Fraction]:
    """Where the unit interval begins and ends, half a step beyond the outer values, without overflow."""
    frame = axis.frame
    assert isinstance(frame, FloatDistribution | IntDistribution)
    half = Fraction(frame.step or 0) / 2
    low, high = Fraction(frame.low) - half, Fraction(frame.high) + half
    return (Fraction(math.log(low)), Fraction(math.log(high))) if axis.log else (low, high)
