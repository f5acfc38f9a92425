"""The space of a task, learned from its trials and from the tasks before it.

A define-by-run objective never says when a parameter exists, so `Condition`s are read off the trials: a
parameter depends on the most often present discrete parameter whose value decides, without exception so far,
whether it is there. A trial that failed or was pruned may have stopped before it asked for everything, so
what such a trial has counts and what it lacks does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lbo.axis import MIDDLE, Axis, choice_key
from lbo.errors import SpaceError
from lbo.space import Array, Bools, Condition, Params, Space

Distributions = Mapping[str, BaseDistribution]


class Shown(NamedTuple):
    """What one trial shows."""

    params: Params
    distributions: Distributions
    whole: bool  # it asked for everything that it would ask for


def learn_space(shown: Sequence[Shown], past: Space | None = None, *, keep_dropped: bool = False) -> Space:
    """The space of a task: what its trials (oldest first) have shown, and what the past knew beyond that.

    A parameter of the past that this task has not asked for stays, since its branch may not have been visited
    yet, unless a whole trial was there where the past says it must exist, or what it depends on is gone: then
    it has been dropped. Memory keeps even those, for a later task that takes them up again.
    """
    past = past or Space(())
    own = _seen_axes([trial.distributions for trial in shown])
    for axis in past.axes:
        if axis.name in own:
            check_same_kind(axis.name, axis.frame, own[axis.name].frame)
    unseen = {axis.name: axis for axis in past.axes if axis.name not in own}
    axes = tuple(axis for _, axis in sorted({**unseen, **own}.items()))
    inherited = dict(past.conditions)
    space = Space(axes, past.conditions)
    U = space.to_unit([trial.params for trial in shown])
    whole = np.array([trial.whole for trial in shown], dtype=bool)

    conditions = {}
    dropped = set()
    for j, axis in enumerate(axes):
        if axis.name in unseen and (_expected(space, U, j) & whole).any():
            dropped.add(axis.name)
        rule = _condition(space, U, whole, j, inherited.get(axis.name))
        if rule is not None:
            conditions[axis.name] = rule
    learned = Space(axes, tuple(sorted(conditions.items())))
    return learned if keep_dropped else learned.only(set(learned.names) - _orphans(learned, dropped, unseen))


def _seen_axes(distributions: Sequence[Distributions]) -> dict[str, Axis]:
    axes: dict[str, Axis] = {}
    for seen in distributions:
        for name, latest in seen.items():
            old = axes.get(name)
            if old is None:
                axes[name] = Axis(name, latest, latest)
            elif not _equal(old.latest, latest):
                axes[name] = Axis(name, _union(name, old.frame, latest), latest)
    return axes


def _equal(old: BaseDistribution, new: BaseDistribution) -> bool:
    # Optuna's own comparison is slow, and every trial has distributions of its own; only NaN choices need it.
    return type(old) is type(new) and (vars(old) == vars(new) or old == new)


def _expected(space: Space, U: Array, j: int) -> Bools:
    """(n,) whether the space's conditions say that each trial has parameter j."""
    filled = U.copy()
    filled[:, j] = MIDDLE
    return np.asarray(space.active(filled)[:, j])


def _orphans(space: Space, dropped: set[str], unseen: Mapping[str, Axis]) -> set[str]:
    """The dropped parameters, and those not seen that depend on them."""
    gone = set(dropped)
    for _ in space.conditions:  # a chain is at most this long
        gone |= {name for name, rule in space.conditions if name in unseen and rule.parent in gone}
    return gone


def _condition(space: Space, U: Array, whole: Bools, j: int, past: Condition | None) -> Condition | None:
    """When parameter j exists: what the past says unless a trial contradicts it, else what the trials say."""
    there = ~np.isnan(U[:, j])
    absent = ~there & whole
    if past is not None:
        expected = _expected(space, U, j)
        if not there.any() or (expected[there].all() and not expected[absent].any()):
            return past
    if not there.any() or not absent.any():
        return None
    learned = _learn_condition(space, U, there, absent)
    if past is None or learned is None or past.parent != learned.parent:
        return learned
    return _completed(learned, past, space, U[absent, space.index[past.parent]])


def _completed(learned: Condition, past: Condition, space: Space, without: Array) -> Condition:
    """A learned condition with the choices of the past that this task has not contradicted."""
    parent = space.axes[space.index[past.parent]]
    known = {choice_key(choice) for choice in learned.choices}
    known |= {choice_key(parent.from_unit(u)) for u in np.unique(without[~np.isnan(without)])}
    more = tuple(choice for choice in past.choices if choice_key(choice) not in known)
    return Condition(learned.parent, learned.choices + more, learned.low, learned.high)


def _learn_condition(space: Space, U: Array, there: Bools, absent: Bools) -> Condition | None:
    presence = (~np.isnan(U)).sum(axis=0)
    # Categorical parents first, then whatever is there most often: a branch's root rather than its leaves.
    # A parent is there more often than its child, so conditions never go round in circles.
    parents = [i for i, axis in enumerate(space.axes) if axis.cells > 1 and presence[i] > there.sum()]
    parents.sort(key=lambda i: (not space.axes[i].choices, -presence[i], i))
    rules = (_separate(space.axes[i], U[there, i], U[absent, i]) for i in parents)
    return next((rule for rule in rules if rule is not None), None)


def _separate(parent: Axis, with_it: Array, without: Array) -> Condition | None:
    """The condition on a parent's value that holds wherever a parameter was seen and nowhere else."""
    if np.isnan(with_it).any():
        return None
    having, lacking = np.unique(with_it), np.unique(without[~np.isnan(without)])
    if parent.choices:
        apart = not np.isin(having, lacking).any()
        return Condition(parent.name, tuple(parent.from_unit(u) for u in having)) if apart else None
    if not lacking.size:
        return Condition(parent.name)
    if having[0] > lacking[-1]:
        return Condition(parent.name, low=parent.from_unit(having[0]))
    if having[-1] < lacking[0]:
        return Condition(parent.name, high=parent.from_unit(having[-1]))
    return None


def check_same_kind(name: str, old: BaseDistribution, new: BaseDistribution) -> None:
    """Refuse a parameter that has changed its type."""
    if type(old) is not type(new):
        raise SpaceError(
            f"A parameter keeps its type within a stream, but {name!r} was {old} and is now {new}. "
            f"Give the new one another name, or start another stream."
        )


def _union(name: str, old: BaseDistribution, new: BaseDistribution) -> BaseDistribution:
    """The smallest frame that holds both; scale and step are those of the newer one."""
    check_same_kind(name, old, new)
    match old, new:
        case CategoricalDistribution(), CategoricalDistribution():
            known = {choice_key(choice) for choice in new.choices}
            extra = [choice for choice in old.choices if choice_key(choice) not in known]
            return CategoricalDistribution([*new.choices, *extra]) if extra else new
        case IntDistribution(), IntDistribution():
            below = max(-((old.low - new.low) // new.step), 0)
            above = max(-((new.high - old.high) // new.step), 0)
            low, high = new.low - below * new.step, new.high + above * new.step
            return IntDistribution(low, high, log=new.log, step=new.step)
        case FloatDistribution(), FloatDistribution():
            return _float_union(old, new)
    raise AssertionError(f"an Axis cannot have a {type(new).__name__}")


def _float_union(old: FloatDistribution, new: FloatDistribution) -> FloatDistribution:
    low, high = min(old.low, new.low), max(old.high, new.high)
    if new.step is None:
        return FloatDistribution(low, high, log=new.log)
    # In decimals, as Optuna counts steps itself: it warns of a range that is not a whole number of them.
    step, origin = Decimal(str(new.step)), Decimal(str(new.low))
    below = math.ceil((new.low - low) / new.step - 1e-9)
    above = math.ceil((high - new.low) / new.step - 1e-9)
    return FloatDistribution(float(origin - below * step), float(origin + above * step), step=new.step)
