"""Optuna's trials as arrays: minimised values, failures marked, and nothing of Optuna beyond here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lbo.growth import Shown, learn_space
from lbo.models.base import Task
from lbo.space import Array, Space

STALE = timedelta(hours=1)


def sign(direction: StudyDirection) -> float:
    """What a user's values are multiplied by to be minimised."""
    return -1.0 if direction == StudyDirection.MAXIMIZE else 1.0


def finished(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that a model learns from: over, for better or worse, and with parameters.

    A trial that died with its process and is run again says nothing about its point; the rerun will.
    """
    rerun = {number for t in trials for number in t.system_attrs.get("retry_history", ())}
    return [t for t in trials if t.state.is_finished() and t.params and t.number not in rerun]


def alive(trials: Sequence[FrozenTrial], now: datetime) -> list[FrozenTrial]:
    """The running trials whose process can still be there.

    Storages without heartbeats leave the trials of a killed process running for ever; nobody should steer
    around them for longer than an hour, or ten times what the longest trial so far took.
    """
    running = [t for t in trials if t.state == TrialState.RUNNING]
    if not running:
        return []
    longest = max((t.duration for t in trials if t.duration is not None), default=timedelta(0))
    patience = max(STALE, 10 * longest)
    return [t for t in running if t.datetime_start is None or now - t.datetime_start < patience]


def latest_distributions(trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Every parameter that the trials asked for, with the distribution of the last one that did."""
    latest: dict[str, BaseDistribution] = {}
    for trial in trials:
        latest.update(trial.distributions)
    return dict(sorted(latest.items()))


def space_of(
    trials: Sequence[FrozenTrial],
    past: Space | None,
    search_space: Mapping[str, BaseDistribution] | None = None,
    *,
    keep_dropped: bool = False,
) -> Space:
    """The space that trials and a search space show, beside what the past knew."""
    shown = [Shown(t.params, t.distributions, t.state == TrialState.COMPLETE) for t in trials]
    if search_space:
        shown.append(Shown({}, search_space, False))
    return learn_space(shown, past, keep_dropped=keep_dropped)


def as_task(space: Space, trials: Sequence[FrozenTrial], direction: StudyDirection) -> Task:
    """Finished trials as a model sees them."""
    U = space.to_unit([t.params for t in trials])
    return Task(space.encode(U), values(trials, direction), space)


def values(trials: Sequence[FrozenTrial], direction: StudyDirection) -> Array:
    """Minimised values of finished trials; NaN for failures.

    An infinitely good value counts as the best finite one: it is a metric's bug more often than a discovery.
    A pruned trial counts as its last report, but never as better than the median of the complete ones, since
    a pruner stopped it for looking no better than those.
    """
    y = np.array([_last_value(t) for t in trials], dtype=float) * sign(direction)
    complete = np.array([t.state == TrialState.COMPLETE for t in trials], dtype=bool) & np.isfinite(y)
    if complete.any():
        ranked = np.sort(y[complete])
        y = np.where(y == -np.inf, ranked[0], y)
        pruned = np.array([t.state == TrialState.PRUNED for t in trials], dtype=bool)
        # An element rather than np.median, whose mean of the middle two may overflow.
        y = np.where(pruned, np.maximum(y, ranked[len(ranked) // 2]), y)
    return np.where(np.isinf(y), np.nan, y)


def _last_value(trial: FrozenTrial) -> float:
    if trial.state == TrialState.COMPLETE and trial.value is not None:
        return trial.value
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        return trial.intermediate_values[max(trial.intermediate_values)]
    return np.nan


def digest(trials: Sequence[FrozenTrial]) -> str:
    """A fingerprint of finished trials: the same for the same numbers, states, parameters and values."""
    lines = [
        (t.number, t.state.name, sorted(t.params.items()), t.values, sorted(t.intermediate_values.items()))
        for t in sorted(trials, key=lambda t: t.number)
    ]
    return hashlib.sha256(json.dumps(lines, default=repr).encode()).hexdigest()[:16]
