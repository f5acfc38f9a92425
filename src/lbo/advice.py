"""Keep or retune? What a task has left to gain, over what the task before it ended with and over its own best.

f          the task's function without observation noise, minimised
U  (n, P)  configurations in unit coordinates
kept       the best configuration of the newest task in memory
incumbent  of the configurations tried, the one that the posterior thinks best
over_previous = f(kept) - min f           what keeping the previous task's configuration loses
left          = f(incumbent) - min f      what stopping now loses

Both are random under the default model's posterior of f, given the task's trials and the memory before it. They are
sampled: f is drawn jointly at a few hundred promising candidates, with uncertain hyper-parameters (`models.draws`), and
the smallest value of each draw is its minimum. The largest Expected Improvement would be cheaper, but it is what the
next trial gains, not what all that may follow do. However well its trials fit memory, a task is taken for a stranger as
often as past tasks were (`_functions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from lbo import acquisition, blas
from lbo import trials as trials_of
from lbo.memory import Memory
from lbo.models import draws, families
from lbo.models.base import Task, plain_gain
from lbo.models.lifelong import Lifelong, LifelongPosterior, log_weight
from lbo.sampler import LBOSampler
from lbo.seeds import Seed
from lbo.space import Array, Params, Space

Recommendation = Literal["keep", "retune", "stop"]

CONFIDENCE = 0.9  # of "keep" and "stop"
SMALL = 0.1  # of the deviation of values over the space: a gain that is not worth a search
POOL = 2048  # random configurations among which candidates are sought
CANDIDATES = 192  # of the largest Expected Improvement; a third as many of the others, at random
CLIMBS = 4  # maxima of the Expected Improvement beside them
NEAR = (0.2, 0.05, 0.01)  # how far from the anchors candidates are sought too
DRAWS = 1000  # of f


@dataclass(frozen=True)
class Gain:
    """What may be gained, in the user's units and never negative."""

    expected: float
    probability: float  # of more than the threshold
    at_most: float  # with a probability of CONFIDENCE


@dataclass(frozen=True)
class Advice:
    """Whether to keep the previous task's configuration, to retune, or to stop."""

    task: str
    recommendation: Recommendation
    reason: str
    trials: int  # finished ones that it rests on
    threshold: float | None  # the smallest gain that counts; None where nothing is known
    previous: str | None  # the task whose configuration could be kept
    configuration: Params | None  # that configuration
    over_previous: Gain | None
    left: Gain | None  # over the best of the task's own trials

    def __str__(self) -> str:
        return f"{self.recommendation}: {self.reason}"


class Known(NamedTuple):
    """What advice rests on: a task's trials, the memory before it, and where its configurations may lie."""

    trials: Sequence[FrozenTrial]
    direction: StudyDirection
    memory: Memory | None
    candidates: Sequence[Params] | None = None


def advise(task: str, known: Known, *, threshold: float | None = None, model: Lifelong | None = None) -> Advice:
    """What to do with a task.

    Args:
        task: its name.
        known: its trials, and the memory of the tasks before it.
        threshold: the smallest gain that counts, in the user's units; None for SMALL of how far values lie apart.
        model: that made the memory; None for the default.
    """
    done = trials_of.finished(known.trials)
    previous = known.memory.records[-1] if known.memory and known.memory.records else None
    with blas.one_thread():
        gains = _gains(done, known, model or Lifelong(), Seed(0) / "advice" / task)
    if gains is None:
        return Advice(task, "retune", _NOTHING_KNOWN, len(done), threshold, None, None, None, None)
    threshold = SMALL * gains.scale if threshold is None else threshold
    over_previous, left = (None if g is None else _summary(g, threshold) for g in (gains.over_previous, gains.left))
    recommendation = _recommendation(over_previous, left)
    return Advice(
        task=task,
        recommendation=recommendation,
        reason=_reason(recommendation, over_previous, left, previous.task if previous else None, threshold, len(done)),
        trials=len(done),
        threshold=threshold,
        previous=previous.task if previous else None,
        configuration=previous.best[0][0] if previous else None,
        over_previous=over_previous,
        left=left,
    )


class Stopper:
    """An Optuna callback that stops a study when the gain that is left is expected to be small.

    Args:
        threshold: the gain, in the objective's units, below which going on is not worth it.

    Examples:
        >>> study.optimize(objective, n_trials=200, callbacks=[lbo.advice.Stopper(0.001)])
    """

    def __init__(self, threshold: float) -> None:
        if not threshold > 0:
            raise ValueError(f"threshold is a gain above 0 in the objective's units, but got {threshold!r}.")
        self.threshold = threshold

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        if GainLeft(study).evaluate(study.get_trials(deepcopy=False), study.direction) < self.threshold:
            study.stop()


class GainLeft:
    """The expected gain left in a study, as `optuna.terminator` asks for it.

    It has the method of `optuna.terminator.BaseImprovementEvaluator` and does not inherit from it: Optuna 6 takes that
    module away, and its Terminator needs no more than the method.

    Examples:
        >>> Terminator(improvement_evaluator=GainLeft(study), error_evaluator=StaticErrorEvaluator(0.001))
    """

    def __init__(self, study: Study) -> None:
        sampler = study.sampler
        self._model, self._candidates, self._memory = Lifelong(), None, None
        if isinstance(sampler, LBOSampler):
            self._candidates = sampler.candidates
            # Another model's memory does not speak to this one; then the study's own trials have to do.
            if isinstance(sampler.model, Lifelong):
                self._model = sampler.model
                self._memory = sampler._stream.memory_for(study) if sampler._stream is not None else None

    def evaluate(self, trials: Sequence[FrozenTrial], study_direction: StudyDirection) -> float:
        """In the objective's units; infinite while there are too few trials to tell."""
        done = trials_of.finished(trials)
        known = Known(trials, study_direction, self._memory, self._candidates)
        if len(done) < max(self._model.n_initial(self._memory), 1):
            return float("inf")
        with blas.one_thread():
            gains = _gains(done, known, self._model, Seed(0) / "left")
        return float("inf") if gains is None or gains.left is None else float(gains.left.mean())


# Sampling


class Gains(NamedTuple):
    """Samples of the two gains, and how far the task's values lie apart, in the user's units."""

    over_previous: Array | None
    left: Array | None
    scale: float


def _gains(done: Sequence[FrozenTrial], known: Known, model: Lifelong, seed: Seed) -> Gains | None:
    """None where neither memory nor trials tell anything."""
    memory = known.memory if known.memory and known.memory.records else None
    values = trials_of.values(done, known.direction)
    if memory is None and np.isfinite(values).sum() < 2:
        return None
    space = trials_of.space_of(done, memory.space if memory else None)
    task = trials_of.as_task(space, done, known.direction)
    posterior = model.fit(task, memory, seed / "fit", None)
    kept = _configurations(space, [memory.records[-1].best[0][0]] if memory else [])
    tried = _configurations(space, [t.params for t, y in zip(done, values, strict=True) if np.isfinite(y)])
    incumbent = _best(posterior, space, tried)
    anchors = np.vstack([kept, incumbent])
    rng = (seed / "draws").rng()
    U = np.vstack([anchors, _candidates(posterior, space, anchors, known.candidates, rng)])
    f = _functions(task, memory, posterior, space.encode(U), rng)
    least = f.min(axis=1)
    return Gains(
        over_previous=f[:, 0] - least if len(kept) else None,
        left=f[:, len(kept)] - least if len(incumbent) else None,
        scale=_scale(posterior, space, memory, rng),
    )


def _functions(
    task: Task, memory: Memory | None, posterior: LifelongPosterior, X: Array, rng: np.random.Generator
) -> Array:
    """(n, len(X)) draws of f, in which the task is a stranger at least as often as past tasks were.

    Trials go where memory sends them. That it is right there says little of the places where it sends none, so their
    evidence may raise the weight of a stranger but not lower it.
    """
    f = draws.functions(task, memory, posterior, X, rng, DRAWS)
    if memory is None:
        return f
    usual = float(np.exp(log_weight(families.recall(task.space, memory), None)))
    lacking = (usual - posterior.stranger) / (1 - posterior.stranger) if posterior.stranger < usual else 0.0
    n = round(lacking * len(f))
    if not n:
        return f
    stranger = replace(posterior, finalists=tuple(h for h in posterior.finalists if h.m is None))
    strange = draws.functions(task, memory, stranger, X, rng, DRAWS)
    return np.vstack([_even(f, len(f) - n), _even(strange, n)])


def _even(rows: Array, n: int) -> Array:
    """n rows from everywhere among them: neighbours are draws with the same hyper-parameters."""
    return np.asarray(rows[np.linspace(0, len(rows) - 1, n).astype(int)])


def _configurations(space: Space, configurations: Sequence[Params]) -> Array:
    return space.snap(space.to_unit(configurations))


def _best(posterior: LifelongPosterior, space: Space, U: Array) -> Array:
    """(1, P) the row that the posterior thinks best; (0, P) if there is none."""
    return U[[posterior.mean(space.encode(U)).argmin()]] if len(U) else U


def _candidates(
    posterior: LifelongPosterior,
    space: Space,
    anchors: Array,
    given: Sequence[Params] | None,
    rng: np.random.Generator,
) -> Array:
    """Configurations among which the minimum is likely to be."""
    over = _Over(posterior, float(posterior.mean(space.encode(anchors)).min()))
    if given is None:
        pool = np.vstack([space.sample(rng, POOL), *(_near(space, anchors, scale, rng) for scale in NEAR)])
        climbs = [acquisition.maximise(over, space, anchors, anchors, rng) for _ in range(CLIMBS)]
    else:
        pool, climbs = _configurations(space, given), []
    order = np.argsort(-acquisition.log_acquisition(over, space.encode(pool)), kind="stable")
    others = rng.permutation(order[CANDIDATES:])[: CANDIDATES // 3]
    return np.vstack([pool[order[:CANDIDATES]], pool[others], *climbs])


class _Over(NamedTuple):
    """A posterior whose gain is over a value, tried or not."""

    posterior: LifelongPosterior
    best: float

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        return plain_gain(self.best, self.posterior.mixture(X))


def _near(space: Space, U: Array, scale: float, rng: np.random.Generator) -> Array:
    """Each row moved many times by about `scale`."""
    many = np.repeat(U, POOL // 8, axis=0)
    return space.snap((many + scale * rng.standard_normal(many.shape)).clip(0.0, 1.0))


def _scale(posterior: LifelongPosterior, space: Space, memory: Memory | None, rng: np.random.Generator) -> float:
    """How far values lie apart over the space: in past tasks, typically, or in this one if it is the first.

    What past tasks say does not change with every trial.
    """
    if memory is not None:
        return families.recall(space, memory).width
    X = space.encode(space.sample(rng, POOL))
    _, _, var = posterior.mixture(X)
    return float(np.sqrt(posterior.mean(X).var() + var.mean()) * posterior.output.width)


# In words


def _summary(gain: Array, threshold: float) -> Gain:
    return Gain(float(gain.mean()), float((gain > threshold).mean()), float(np.quantile(gain, CONFIDENCE)))


def _recommendation(over_previous: Gain | None, left: Gain | None) -> Recommendation:
    if over_previous is not None and over_previous.probability <= 1 - CONFIDENCE:
        return "keep"
    if left is not None and left.probability <= 1 - CONFIDENCE:
        return "stop"
    return "retune"


_NOTHING_KNOWN = "Nothing is known of this task yet: there is no task before it, and it has fewer than two values."


def _reason(
    recommendation: Recommendation,
    over_previous: Gain | None,
    left: Gain | None,
    previous: str | None,
    threshold: float,
    trials: int,
) -> str:
    """One sentence."""
    if recommendation == "keep":
        assert over_previous is not None
        return (
            f"The configuration of {previous!r} is expected to lose {_number(over_previous.expected)}, and with a "
            f"probability of {1 - over_previous.probability:.0%} not more than {_number(threshold)}."
        )
    if recommendation == "stop":
        assert left is not None
        return (
            f"Little is left: the best of {trials} trials is expected to be within {_number(left.expected)} of the "
            f"optimum, and with a probability of {1 - left.probability:.0%} within {_number(threshold)}."
        )
    gain = left or over_previous
    assert gain is not None
    over = f"the best of {trials} trials" if left else f"the configuration of {previous!r}"
    return (
        f"Tuning is expected to gain {_number(gain.expected)} over {over}, and more than {_number(threshold)} with a "
        f"probability of {gain.probability:.0%}."
    )


def _number(x: float) -> str:
    return f"{x:.2g}"
