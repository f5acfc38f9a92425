"""LBOSampler: lbo behind Optuna's sampler interface. Reads trials, encodes, asks the model, decodes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lbo import acquisition, blas
from lbo import trials as trials_of
from lbo.growth import check_same_kind
from lbo.models.base import Model, Posterior, Task
from lbo.seeds import Seed, fresh_seed
from lbo.space import Array, Axis, Space

if TYPE_CHECKING:
    from lbo.memory import Memory

Params = Mapping[str, Any]

_SUGGESTION = "lbo:suggestion"  # system attribute: what a running trial was told to try, in Optuna's internal form
_MAX_SHADOWED = 8  # running trials of other workers whose suggestion is worked out when it is not stored yet
_KEPT = "lbo:kept"  # system attribute: the worker has looked round after publishing and goes through with it
_ATTEMPTS = 8  # at a point that no other worker has taken in the meantime
_PATIENCE = 1.0  # seconds for a worker that published the same point to keep it or let it go
_GLANCE = 0.005  # seconds between two looks at it
SHARING = "lbo:sharing"  # user attribute of a trial: what its suggestion leaned on
YOUNG = 5  # trials; a task that may resemble nothing remembered explores until then
STRANGE = 0.3  # how likely that must be
_STARTS = 5  # of each kind
_INITIAL_POOL = 64  # random points of which a young task tries the one farthest from those tried


@dataclass(frozen=True)
class _View:
    """A study at one moment, as arrays; everything an ask depends on besides the seed."""

    space: Space
    task: Task  # finished trials
    U: Array  # (N, P) their unit coordinates
    pending: Array  # (R, P) running trials whose suggestion is known
    unpublished: tuple[int, ...]  # numbers of running trials whose suggestion is not known yet
    settled: frozenset[int]  # numbers of the other trials of which there will be no news
    candidates: Array | None  # (C, P) what may be chosen from, if not the whole space


class LBOSampler(BaseSampler):
    """Bayesian optimisation that remembers.

    Without a stream it tunes one task; `lbo.Stream.study` attaches it to a stream, whose memory it reads.

    Args:
        model: the surrogate, one of `lbo.models`; None for the default.
        seed: the same seed gives the same trials, also in a study stopped and resumed in another process.
        stream: the `lbo.Stream` that the study belongs to.
        candidates: configurations (dicts of parameters) to choose from; None for the whole space.
    """

    def __init__(
        self,
        *,
        model: Model | None = None,
        seed: int | None = None,
        stream: Any = None,
        candidates: Sequence[Params] | None = None,
    ) -> None:
        from lbo.models import default_model

        self.model = model if model is not None else default_model()
        self.candidates = list(candidates) if candidates is not None else None
        self._seed = Seed(seed) if seed is not None else fresh_seed()
        self._stream = stream
        self._lock = threading.Lock()
        self._fitted: tuple[Task, Posterior] | None = None
        self._joint: dict[tuple[int, int], dict[str, Any]] = {}  # (study id, trial number): its suggestion

    def __getstate__(self) -> dict[str, Any]:
        # Locks do not travel to other processes; fits are worked out again there.
        return {**self.__dict__, "_lock": None, "_fitted": None, "_joint": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    # Optuna's interface

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        _check_single_objective(study)
        # Only what this study has shown itself: Optuna refuses a suggestion whose choices differ from the
        # objective's, and a new task's may. What memory knows beyond that is offered in `sample_independent`.
        return trials_of.latest_distributions(study.get_trials(deepcopy=False))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        _check_single_objective(study)
        if not search_space:
            return {}
        joint = self._suggest(study, trial, search_space)
        return {name: joint[name] for name in search_space if name in joint}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        _check_single_objective(study)
        axis = Axis(param_name, param_distribution, param_distribution)
        if self._stream is not None:
            memory = self._stream.memory_for(study, self.model)
            if memory is not None and param_name in memory.space.index:
                known = memory.space.axes[memory.space.index[param_name]]
                check_same_kind(param_name, known.latest, param_distribution)
            joint = self._suggest(study, trial, None)
            if param_name in joint and _fits(param_distribution, joint[param_name]):
                return joint[param_name]
        rng = (self._study_seed(study) / trial.number / param_name).rng()
        allowed = [c[param_name] for c in self._consistent_candidates(trial.params) if param_name in c]
        allowed = [value for value in allowed if _fits(param_distribution, value)]
        if allowed:
            return allowed[rng.integers(len(allowed))]
        return axis.from_unit(float(axis.snap(rng.random(1))[0]))

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._joint.pop((study._study_id, trial.number), None)

    # One ask

    def _suggest(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution] | None
    ) -> dict[str, Any]:
        """The joint suggestion for a trial; without a search space, the one worked out before if there is."""
        key = (study._study_id, trial.number)
        with self._lock:
            if search_space is None and key in self._joint:
                return self._joint[key]
            with blas.one_thread():
                self._joint[key] = self._work_out(study, trial, search_space)
            return self._joint[key]

    def _work_out(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution] | None
    ) -> dict[str, Any]:
        memory: Memory | None = None if self._stream is None else self._stream.memory_for(study, self.model)
        suggestion: dict[str, Any] = {}
        for _ in range(_ATTEMPTS):
            view = self._read(study, trial, search_space, memory)
            if not view.space.axes:
                break
            pending = view.pending
            earlier = [number for number in view.unpublished if number < trial.number]
            for number in deque(earlier, _MAX_SHADOWED):
                # Another worker is working this one out: from the same trials and seed it comes to the same.
                pending = np.vstack([pending, self._point(study, view, memory, pending, number)])
            point = self._point(study, view, memory, pending, trial.number)
            suggestion = self._decode(view, point)
            _publish(study, trial, view.space, suggestion)
            if not _is_ceded(study, trial, view, point):
                self._explain(study, trial, view, point)
                break
        return suggestion

    def _read(
        self,
        study: Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution] | None,
        memory: Memory | None,
    ) -> _View:
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        done, running = trials_of.finished(others), trials_of.alive(others, datetime.now())
        space = trials_of.space_of([*done, *running], memory.space if memory else None, search_space)
        if search_space is not None:
            # A sampler that fixes parameters (Optuna's PartialFixedSampler) takes them out of the space.
            fixed = trials_of.latest_distributions(others).keys() - search_space.keys()
            space = space.only(set(space.names) - fixed)
        tried = {t.number: _tried(t, space) for t in running}
        unpublished = tuple(number for number, params in tried.items() if not params)
        U = space.to_unit([t.params for t in done])
        return _View(
            space=space,
            task=Task(space.encode(U), trials_of.values(done, study.direction), space),
            U=U,
            pending=space.without_inactive(space.to_unit([params for params in tried.values() if params])),
            unpublished=unpublished,
            settled=frozenset(t.number for t in others if t.state != TrialState.WAITING).difference(tried),
            candidates=None if self.candidates is None else space.snap(space.to_unit(self.candidates)),
        )

    def _point(self, study: Study, view: _View, memory: Memory | None, pending: Array, number: int) -> Array:
        """The configuration (P,) for a trial."""
        seed = self._study_seed(study) / number
        taken = np.vstack([view.U, pending])
        opening = self._opening(view, memory)
        if opening is not None and not acquisition.is_taken(opening, taken):
            return opening
        if len(view.U) < self.model.n_initial(memory) or np.isfinite(view.task.y).sum() < 2:
            return _initial(view, taken, (seed / "initial").rng())
        posterior = self._fit(study, view, memory)
        if memory is not None and len(view.U) < YOUNG and posterior.stranger > STRANGE:
            return _initial(view, taken, (seed / "stranger").rng())
        if len(pending):
            posterior = posterior.believe(view.space.encode(pending))
        if view.candidates is not None:
            return acquisition.choose(posterior, view.space, view.candidates, taken)
        return acquisition.maximise(posterior, view.space, _starts(view, memory), taken, (seed / "acquisition").rng())

    def _opening(self, view: _View, memory: Memory | None) -> Array | None:
        """What the model wants tried before anything else; of candidates, the nearest to it."""
        opening = self.model.opening(view.task, memory)
        if opening is None:
            return None
        point = view.space.snap(view.space.to_unit([opening]))
        if view.candidates is None:
            return np.asarray(point[0])
        return np.asarray(view.candidates[_squared_distances(view.space, view.candidates, point).argmin()])

    def _fit(self, study: Study, view: _View, memory: Memory | None) -> Posterior:
        previous = None
        if self._fitted is not None and _is_prefix(self._fitted[0], view.task):
            previous = self._fitted[1]
        fitted = self.model.fit(view.task, memory, self._study_seed(study) / "fit", previous)
        self._fitted = (view.task, fitted)
        return fitted

    def _decode(self, view: _View, point: Array) -> dict[str, Any]:
        params = view.space.from_unit(point)
        if self.candidates is not None and view.candidates is not None:
            # The candidate itself: decoding would move its numbers by a rounding error.
            same = (view.candidates == point) | (np.isnan(view.candidates) & np.isnan(point))
            params.update(self.candidates[int(same.all(axis=1).argmax())])
        return params

    def _explain(self, study: Study, trial: FrozenTrial, view: _View, point: Array) -> None:
        """Note with the trial what its suggestion leaned on, if a posterior made it."""
        if self._stream is not None and self._fitted is not None and self._fitted[0] is view.task:
            sharing = self._fitted[1].sharing(view.space.encode(point[None])[0])
            if sharing:
                leaned = {name: round(share, 4) for name, share in sharing.items()}
                study._storage.set_trial_user_attr(trial._trial_id, SHARING, leaned)

    def _consistent_candidates(self, params: Params) -> list[Params]:
        """The candidates that have what a trial was given so far."""
        return [c for c in self.candidates or [] if all(name in c and c[name] == params[name] for name in params)]

    def _study_seed(self, study: Study) -> Seed:
        # In-memory studies get random names, and resuming them is impossible anyway.
        return self._seed if self._stream is None else self._seed / study.study_name


def _initial(view: _View, taken: Array, rng: np.random.Generator) -> Array:
    """A random point while the task is too young for its model, away from those tried: few points, well spread."""
    pool = view.space.sample(rng, _INITIAL_POOL) if view.candidates is None else rng.permutation(view.candidates)
    if len(taken):
        nearest = _round_the_edges(view.space, pool[:_INITIAL_POOL], taken).min(axis=1)
        farthest_first = np.argsort(-nearest, kind="stable")
        pool = np.vstack([pool[farthest_first], pool[_INITIAL_POOL:]])
    return acquisition.first_free(view.space, pool, taken)


def _round_the_edges(space: Space, U: Array, V: Array) -> Array:
    """(len(U), len(V)) squared distances with the ends of every number joined.

    Measured straight, whatever is tried, the edges of the space are farthest from it, and no good place to look.
    """
    apart = np.abs(space.encode(U)[:, None] - space.encode(V))
    number = np.array([choice is None for _, choice in space.columns], dtype=bool)
    return np.asarray((np.where(number, np.minimum(apart, 1.0 - apart), apart) ** 2).sum(axis=2))


def _starts(view: _View, memory: Memory | None) -> Array:
    """The best configurations so far and those of the latest tasks, from which the acquisition climbs too."""
    order = np.argsort(np.where(np.isnan(view.task.y), np.inf, view.task.y), kind="stable")
    winners = [record.best[0][0] for record in memory.records[-_STARTS:]] if memory else []
    return np.vstack([view.U[order[:_STARTS]], view.space.snap(view.space.to_unit(winners))])


def _squared_distances(space: Space, U: Array, V: Array) -> Array:
    """(len(U), len(V)) between configurations as models see them."""
    A, B = space.encode(U), space.encode(V)
    return np.asarray((A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - 2 * A @ B.T)


def _is_prefix(task: Task, longer: Task) -> bool:
    n = len(task)
    return (
        n <= len(longer)
        and task.space == longer.space
        and np.array_equal(task.X, longer.X[:n])
        and np.array_equal(task.y, longer.y[:n], equal_nan=True)
    )


def _publish(study: Study, trial: FrozenTrial, space: Space, suggestion: Params) -> None:
    """Tell other workers what this trial is going to try before its objective asks for it."""
    # Optuna's internal form is a number for every value, also for a choice that JSON cannot hold.
    told = {axis.name: float(axis.latest.to_internal_repr(suggestion[axis.name])) for axis in space.axes}
    study._storage.set_trial_system_attr(trial._trial_id, _SUGGESTION, told)


def _is_ceded(study: Study, trial: FrozenTrial, view: _View, point: Array) -> bool:
    """Whether the published point is left to another worker that published the same since the view was read.

    Optuna's storages have no compare-and-set, so this is a flag for each worker and an order among them: publish, look
    round, then keep. Of two that see each other the smaller number keeps the point. The larger may have looked round
    before the smaller published, and keeps it then; so the smaller waits until the larger has decided.
    """
    if acquisition.is_taken(point, np.vstack([view.U, view.pending])):
        return False  # nothing is left that nobody has
    deadline = time.monotonic() + _PATIENCE
    while True:
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        news = [t for t in others if t.number not in view.settled]
        tried = [_tried(t, view.space) for t in news]
        U = view.space.without_inactive(view.space.to_unit(tried))
        same = [
            t for t, params, u in zip(news, tried, U, strict=True) if params and acquisition.is_taken(point, u[None])
        ]
        if any(t.params or t.number < trial.number or _KEPT in t.system_attrs for t in same):
            return True
        if not same or time.monotonic() > deadline:  # nobody has it, or its worker died before it decided
            break
        time.sleep(_GLANCE)
    if any(t.number < trial.number and not t.params for t in news):  # one of them may come to wait for this
        study._storage.set_trial_system_attr(trial._trial_id, _KEPT, True)
    return False


def _tried(trial: FrozenTrial, space: Space) -> dict[str, Any]:
    """What a running trial tries: what it was told, unless it was enqueued with or has got something else."""
    told, fixed = trial.system_attrs.get(_SUGGESTION, {}), trial.system_attrs.get("fixed_params", {})
    params = {a.name: a.latest.to_external_repr(told[a.name]) for a in space.axes if a.name in told}
    params |= {a.name: fixed[a.name] for a in space.axes if a.name in fixed and _fits(a.frame, fixed[a.name])}
    return {**params, **trial.params}


def _fits(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a value is one of a distribution's."""
    try:
        return distribution._contains(distribution.to_internal_repr(value))
    except ValueError:  # not one of the choices
        return False


def _check_single_objective(study: Study) -> None:
    if len(study.directions) != 1:
        raise ValueError(
            f"LBOSampler optimises one objective, but the study has {len(study.directions)} directions. "
            f"Return one number (a weighted sum, say) and create the study with direction=..., "
            f"or use optuna.samplers.NSGAIISampler for several objectives."
        )
