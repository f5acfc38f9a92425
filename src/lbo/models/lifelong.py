"""The default model: remembered functions, gated by evidence, plus a Gaussian process for what they lack.

z = s (c + b(x) + rho g_m(x) + sqrt(1 - rho^2) r(x) + noise)    for one remembered function g_m, or for none (rho = 0)

z        (N,)    targets, as the task's output transform gives them
mu, C            mean and covariance of g_m                    theta  (P + 3,)  log ell, logit rho^2, log noise, log s
sign             of rho: a task may be a past one turned upside down, and then says as much of where to look
e        (N,)    z / s - rho mu
A        (N, N)  cov e = rho^2 C + (1 - rho^2) Matern52(ell) + cov(c + b) + noise I
c, b             offsets of the task, and of each algorithm in it where the space has several (see `component`)
r                Matern52, one length scale per parameter: with rho = 0 this is a single-task GP, so sharing with
                 nobody is always one of the hypotheses, and sharing a little is next to it
weights  (H,)    posterior of the hypotheses: evidence times how many tasks chose likewise before
doubt            one more hypothesis: the likeliest, should the function be wigglier than its trials show; it has a
                 fifth of that one's weight, times what the trials say for it, but never less than a few percent

Against the model that the design sketches: a gate is a hypothesis and opens one function at a time, since its evidence
is then exact and needs no gradient; the functions are Gaussian process posteriors kept at a few points instead of
distilled networks, so they know what they do not know and nothing is lost in distillation; and r stands for the
task's own feature maps. `lbo.models.Paper` is the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lbo.maths import Array, descent, gaussian, linalg, matern
from lbo.models import families, latent, output
from lbo.models.base import Lesson, Posterior, Task, checkpoint
from lbo.models.component import (
    Component,
    Hypothesis,
    branch_of,
    condition,
    gain_each,
    given,
    leaning,
    most_telling,
    offset_cov,
    predict_each,
    prior_mean,
    shared,
)
from lbo.models.families import Past
from lbo.models.output import Output
from lbo.seeds import Seed

if TYPE_CHECKING:
    from lbo.memory import Memory

OPENINGS = 2  # past winners tried before the posterior is asked
APART = 0.25  # two winners nearer than this, per square root of a column of the encoded space, tell the same
PACE = 5  # for every so many trials of a task, one algorithm at least has been tried
LOOKS = 1024  # random configurations among which the best of an overlooked one is sought
GROWTH = 1.1  # hyper-parameters are learned anew when a task has grown by this factor
DEFAULTS_WORTH = 2.0  # tasks: what the priors of hyper-parameters are before any task has been seen
FOUNDING = 0.5  # by this much log evidence must a family explain a task better than none, or it founds one
UPSIDE_DOWN = 0.05  # of the tasks that lean on a function are, before their trials say otherwise
FINALISTS = 3  # hypotheses whose hyper-parameters are learned; the others are only scored
NEGLIGIBLE = np.log(0.01)  # hypotheses of a smaller weight are left out of the mixture
DOUBT, DOUBT_SCALE = 0.2, 0.5  # prior odds of the doubt, and its length scales as a part of the learned ones
LEAST_DOUBT = 0.03  # trials that all lie in one valley say too much for its width
DOUBT_FROM = 5  # trials; before that, the learned length scales are the prior's
SHIFTS = np.array([-2.0, -1.0, 0.0, 1.0])  # of log s, tried before anything is learned
FAIL_WIDTH = 0.1  # how far around a failure, per square root of a parameter, another one is likely
FAIL_FAITH = 0.5  # what a failure in a past task counts beside one in this task

ELL = (np.log(0.02), np.log(50.0))
LOGIT_RHO2 = (-6.0, 8.0)
NOISE = (np.log(1e-7), 0.0)
SCALE = (-9.0, 9.0)


@dataclass(frozen=True)
class Lifelong:
    """The default: remembers what past functions looked like, and leans on them as far as evidence goes.

    Args:
        functions: M, how many remembered functions there are at the most.
        points: J, at how many points each is kept.
    """

    name: ClassVar[str] = "Lifelong"

    functions: int = 8
    points: int = 96

    def __post_init__(self) -> None:
        if self.functions < 2 or self.points < 1:
            raise ValueError(
                f"Lifelong keeps the latest task's function and at least one family's, each at one point or more, but "
                f"functions={self.functions} and points={self.points}. Use Lifelong(functions=8, points=96)."
            )

    def n_initial(self, memory: Memory | None) -> int:
        return 3 if memory is None else 0

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        """The last task's best configuration, then the past winner that the families think best elsewhere.

        Where all winners are in one place there is no second one, and the next trial is random: what is elsewhere
        tells whether the past can be believed. Later, an algorithm that the task has overlooked.
        """
        if memory is None:
            return None
        past = families.recall(task.space, memory)
        if len(task) >= OPENINGS:
            return _overlooked(task, past)
        winners = [record.best[0][0] for record in memory.records]
        if not len(task):
            return winners[-1]
        X = task.space.encode(task.space.snap(task.space.to_unit(winners)))
        apart = APART * np.sqrt(X.shape[1])
        far = np.flatnonzero(np.linalg.norm(X[:, None] - task.X, axis=-1).min(axis=1) > apart)
        if not len(far):
            return None
        promise = families.expected(past, X[far])
        return winners[int(far[promise.argmin()])]

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> LifelongPosterior:
        past = self._recall(task, memory)
        start = checkpoint(len(task), 2, GROWTH)
        if isinstance(previous, LifelongPosterior) and previous.learned_at == start:
            finalists, out = previous.finalists, previous.output
        else:
            first = task.first(start)
            finalists, out = _learn(first, past, self._outputs(first, past), self._both_ways_up)
        return _posterior(task, past, out, finalists, start, self._doubt)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        past = self._recall(task, memory)
        finalists, out = _learn(task, past, self._outputs(task, past), self._both_ways_up)
        posterior = _posterior(task, past, out, finalists, len(task), self._doubt)
        home = _home(task, past, out, posterior.alone)
        return families.remember(self.functions, self.points, task, past, posterior, home, seed)

    # What a variant does without (lbo.experiments.ablation)

    _doubt: ClassVar[float] = DOUBT
    _both_ways_up: ClassVar[bool] = True  # tries functions upside down

    def _recall(self, task: Task, memory: Memory | None) -> Past:
        return families.recall(task.space, memory)

    def _outputs(self, task: Task, past: Past) -> Sequence[Output]:
        """The transforms to choose from: before five trials values cannot tell, but past tasks can."""
        plain = output.plain(task.y, past.width)
        warped = output.warped(task.y, past.width, output.sparsity(task.X))
        if np.isfinite(task.y).sum() >= 5:
            return plain, warped
        return (warped,) if _habit(past) > 0 else (plain,)


def _overlooked(task: Task, past: Past) -> Mapping[str, Any] | None:
    """What the past thinks best of the algorithms not tried yet, if the task has tried few for its trials.

    Trials of one algorithm cannot contradict a past that thought another poor: it would never be tried again.
    """
    tried = task.X.any(axis=0)
    overlooked = task.space.branching & ~tried
    if PACE * (task.space.branching & tried).sum() > len(task) or not overlooked.any():
        return None
    U = task.space.sample(np.random.default_rng(0), LOOKS)
    X = task.space.encode(U)
    there = X[:, overlooked].any(axis=1)
    if not there.any():  # of equal choices (1 and True), only the first can be drawn
        return None
    return task.space.from_unit(U[there][families.expected(past, X[there]).argmin()])


# Hyper-parameters


class Prior(NamedTuple):
    """Normal priors of theta."""

    mean: Array
    std: Array


def _prior(task: Task, past: Past) -> Prior:
    P = len(task.space.axes)
    faith = past.tasks / (past.tasks + DEFAULTS_WORTH)
    default = {"logit_rho2": 0.0, "log_noise": np.log(1e-3)}
    mean = {name: (1 - faith) * value + faith * past.theta.get(name, value) for name, value in default.items()}
    log_ell = np.log(0.35) + 0.5 * np.log(max(P, 1))
    log_ells = (DEFAULTS_WORTH * log_ell + past.scales.log_ell) / (DEFAULTS_WORTH + past.scales.tasks)
    return Prior(
        np.concatenate([log_ells, [mean["logit_rho2"], mean["log_noise"], 0.0]]),
        np.concatenate([np.full(P, 1.0), [1.5, 3.0, 1.5]]),
    )


class Problem:
    """Minus the log posterior of theta under one hypothesis, with its gradient."""

    sign = 1.0

    def __init__(self, task: Task, past: Past, m: int | None, out: Output) -> None:
        task = most_telling(task)
        self.m, self.X, self.z = m, task.X, out.to_z(task.y)
        self.axis = task.space.column_axis
        self.offsets = offset_cov(branch_of(task.space), task.X, task.X)
        self.prior = _prior(task, past)
        self.log_weight = log_weight(past, m)
        if m is not None:
            self.log_weight += float(np.log(1 - UPSIDE_DOWN))
            self.mu = latent.mean(past.functions[m], task.X)
            self.C = latent.cov(past.functions[m], task.X, task.X)

    def upside_down(self) -> Problem:
        """The same with rho below zero."""
        other = copy(self)
        other.sign = -1.0
        other.log_weight += float(np.log(UPSIDE_DOWN / (1 - UPSIDE_DOWN)))
        return other

    def start(self) -> tuple[float, Array]:
        """The best of a few scales, all else at its prior's mean; A is the same for all of them."""
        mean, N = self.prior.mean, len(self.z)
        A, _, _, rho = self._covariance(mean)
        W = linalg.whitener(A)
        log_s = mean[-1] + SHIFTS
        e = np.exp(-log_s)[:, None] * (W @ self.z)  # whitened, scales down
        if self.m is not None:
            e = e - rho * (W @ self.mu)
        log_density = -0.5 * np.vecdot(e, e) - linalg.half_log_det(W) - 0.5 * N * np.log(2 * np.pi)
        values = -(log_density - N * log_s - 0.5 * (SHIFTS / self.prior.std[-1]) ** 2)
        best = int(values.argmin())
        return float(values[best]) - self.log_weight, np.append(mean[:-1], log_s[best])

    def solve(self, start: Array) -> Hypothesis:
        low, high = np.array([ELL] * (len(start) - 3) + [LOGIT_RHO2, NOISE, SCALE]).T
        # What the data add to the prior's curvature, roughly: of log s it is 2 N where s fits them.
        of_data = len(self.z) * np.append(np.full(len(start) - 1, 0.1), 2.0)
        curvature = self.prior.std**-2 + of_data
        found = descent.minimise(self, start, low, high, curvature=curvature, steps=40, ftol=1e-6)
        return Hypothesis(self.m, found.x, self.log_weight - found.value, self.sign)

    def __call__(self, theta: Array) -> tuple[float, Array]:
        P = len(theta) - 3
        noise, s = np.exp(theta[P + 1 :])
        A, K, tape, rho = self._covariance(theta)
        e = self.z / s
        if self.m is not None:
            e = e - rho * self.mu
        value, dA, de = gaussian.log_evidence_grad(A, e)
        dlog_ell, _ = matern.kernel_grad(tape, (1 - rho**2) * dA)
        gradient = np.zeros_like(theta)
        gradient[:P] = np.bincount(self.axis, dlog_ell, minlength=P)
        if self.m is not None:
            drho2 = float(np.vdot(dA, self.C - K)) - 0.5 * float(de @ self.mu) / rho
            gradient[P] = drho2 * rho**2 * (1 - rho**2)
        gradient[P + 1] = noise * np.trace(dA)
        gradient[P + 2] = -(de @ self.z) / s - len(self.z)
        away = (theta - self.prior.mean) / self.prior.std
        objective = value - len(self.z) * theta[-1] - 0.5 * float(away @ away)
        return -objective, -(gradient - away / self.prior.std)

    def _covariance(self, theta: Array) -> tuple[Array, Array, matern.Tape, float]:
        """A, and K of r with its tape, and rho."""
        P = len(theta) - 3
        rho = 0.0 if self.m is None else self.sign * float(np.sqrt(shared(theta)))
        K, tape = matern.kernel_tape(self.X, np.exp(theta[:P])[self.axis], 1.0)
        A = (1 - rho**2) * K + self.offsets
        if self.m is not None:
            A += rho**2 * self.C
        linalg.diagonal(A)[:] += np.exp(theta[P + 1])
        return A, K, tape, rho


def log_weight(past: Past, m: int | None) -> float:
    """The restaurant's: as many tasks as chose a function, or none, before; half a task for what nobody chose yet.

    The first task had no choice and does not count.
    """
    choices = max(past.tasks - 1, 0)
    chose = choices - past.counts.sum() if m is None else past.counts[m]
    return float(np.log(chose + 0.5) - np.log(choices + 0.5 * (len(past.counts) + 1)))


def _home(task: Task, past: Past, out: Output, alone: Hypothesis) -> Hypothesis:
    """The family that explains a task best, or none, for it to found one.

    Evidence decides: that past tasks leaned on nobody is no reason to found another family.
    """
    homes = [alone, *(_solve(task, past, m, out) for m in range(1, len(past.functions)))]
    evidence = [h.score - log_weight(past, h.m) for h in homes]
    evidence[0] += FOUNDING
    return homes[int(np.argmax(evidence))]


def _learn(
    task: Task, past: Past, outputs: Sequence[Output], both_ways_up: bool
) -> tuple[tuple[Hypothesis, ...], Output]:
    """The best hypotheses with their hyper-parameters, best first, and the output transform they hold under."""
    out, alone = _choose_output(task, past, outputs)
    problems = [Problem(task, past, m, out) for m in range(len(past.functions))]
    if both_ways_up:
        problems += [problem.upside_down() for problem in problems]
    starts = [(*problem.start(), problem) for problem in problems]
    promising = _distinct(past, sorted(starts, key=lambda start: start[0]))[: FINALISTS - 1]
    learned = [alone, *(problem.solve(theta) for _, theta, problem in promising)]
    return tuple(sorted(learned, key=lambda h: -h.score)), out


Start = tuple[float, Array, Problem]


def _distinct(past: Past, starts: Sequence[Start]) -> list[Start]:
    """Starts without twins: a task that founded a family is the latest function and the family's at once."""
    first: dict[tuple[bytes, float], Start] = {}
    for start in starts:
        problem = start[2]
        assert problem.m is not None
        first.setdefault((past.functions[problem.m].latent.u.tobytes(), problem.sign), start)
    return list(first.values())


def _solve(task: Task, past: Past, m: int | None, out: Output) -> Hypothesis:
    problem = Problem(task, past, m, out)
    return problem.solve(problem.start()[1])


def _choose_output(task: Task, past: Past, outputs: Sequence[Output]) -> tuple[Output, Hypothesis]:
    """The transform that makes the trials likeliest under a GP that shares with nobody, and that GP."""
    fits = [(out, _solve(task, past, None, out)) for out in outputs]
    y = most_telling(task).y
    likely = [alone.score + out.log_jacobian(y) + out.warped * _habit(past) for out, alone in fits]
    return fits[int(np.argmax(likely))]


def _habit(past: Past) -> float:
    """Log odds that a task is warped, from past ones: a thousand of them too can be outvoted."""
    warped = past.tasks * past.theta.get("warped", 0.5)
    return float(np.log((warped + 1) / (past.tasks - warped + 1)))


# The posterior


@dataclass(frozen=True)
class LifelongPosterior:
    """A mixture over the finalists, times the chance that a trial does not fail."""

    components: tuple[Component, ...]
    log_w: Array
    finalists: tuple[Hypothesis, ...]
    output: Output
    learned_at: int
    X: Array
    z: Array
    succeeded: Array  # (n, D) where this task's trials did not fail
    failed: Array  # (F, D) where trials failed, of this task and of past ones
    failed_weight: Array  # (F,)

    def mixture(self, X: Array) -> tuple[Array, Array, Array]:
        return self._weights(X), *predict_each(self.components, X)

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        return self._weights(X), *gain_each(self.components, X)

    def mean(self, X: Array) -> Array:
        """Of f, in units of z."""
        return np.asarray(np.exp(self.log_w) @ predict_each(self.components, X)[0])

    def believe(self, X: Array) -> LifelongPosterior:
        X_all, z_all = np.vstack([self.X, X]), np.append(self.z, self.mean(X))
        components = tuple(given(c, X_all, z_all) for c in self.components)
        return replace(self, components=components, X=X_all, z=z_all, succeeded=np.vstack([self.succeeded, X]))

    def to_user(self, values: Array) -> Array:
        return self.output.to_user(values)

    @property
    def alone(self) -> Hypothesis:
        """That the task leans on no function."""
        return next(h for h in self.finalists if h.m is None)

    @property
    def stranger(self) -> float:
        return float(sum(np.exp(w) for c, w in zip(self.components, self.log_w, strict=True) if c.m is None))

    def sharing(self, x: Array) -> dict[str, float]:
        """How far the prediction at x (D,) rests on each remembered function (see `leaning`), and on the task alone."""
        weights = np.exp(self.log_w)
        leaned = {f"function {m}": share for m, share in leaning(self.components, self.log_w).items()}
        from_memory = [float(c.rho * c.s * latent.mean(c.g, x[None])[0]) if c.g else 0.0 for c in self.components]
        return {
            **leaned,
            "alone": 1.0 - sum(leaned.values()),
            "mean": float(self.mean(x[None])[0]),
            "mean from memory": float(weights @ np.array(from_memory)),
        }

    def _weights(self, X: Array) -> Array:
        """log weights of the components; less the chance of a failure, where there was any."""
        return self.log_w[:, None] + self._log_success(X) if len(self.failed) else self.log_w

    def _log_success(self, X: Array) -> Array:
        """log chance that a trial at X succeeds: neighbours that did, and one in doubt, against those that failed."""
        width = FAIL_WIDTH * np.sqrt(X.shape[1])
        ok = 1.0 + _near(X, self.succeeded, width).sum(axis=1)
        return np.asarray(np.log(ok / (ok + _near(X, self.failed, width) @ self.failed_weight)))


def _near(X1: Array, X2: Array, width: float) -> NDArray[np.float64]:
    d2 = ((X1[:, None, :] - X2[None, :, :]) ** 2).sum(axis=-1)
    return np.asarray(np.exp(-0.5 * d2 / width**2))


def _function(past: Past, hypothesis: Hypothesis) -> latent.Prepared | None:
    return None if hypothesis.m is None else past.functions[hypothesis.m]


def _doubted(
    components: list[Component], log_w: Array, X: Array, z: Array, doubt: float
) -> tuple[list[Component], Array]:
    """The mixture with its doubt.

    Length scales that are too long see nothing to find away from the best trials, and the search is stuck there.
    """
    leader = components[0]
    wiggly = given(leader._replace(ell=DOUBT_SCALE * leader.ell), X, z)
    e = z / leader.s - prior_mean(leader, X)
    log_ratio = gaussian.log_density(wiggly.fit, e) - gaussian.log_density(leader.fit, e)
    odds = doubt * np.exp(min(log_ratio, 0.0))
    log_w = np.append(log_w, log_w[0] + np.log(max(odds, LEAST_DOUBT)))
    return [*components, wiggly], log_w - np.logaddexp.reduce(log_w)


def _posterior(
    task: Task, past: Past, out: Output, finalists: Sequence[Hypothesis], learned_at: int, doubt: float
) -> LifelongPosterior:
    succeeded, failed = task.X[~np.isnan(task.y)], task.X[np.isnan(task.y)]
    task = most_telling(task)
    z = out.to_z(task.y)
    score = np.array([h.score for h in finalists])
    score -= np.logaddexp.reduce(score)
    kept = [h for h, log_w in zip(finalists, score, strict=True) if log_w > NEGLIGIBLE]
    log_w = score[score > NEGLIGIBLE]
    log_w = log_w - np.logaddexp.reduce(log_w)
    components = [condition(task, z, _function(past, h), h) for h in kept]
    if doubt and len(task) >= DOUBT_FROM:
        components, log_w = _doubted(components, log_w, task.X, z, doubt)
    return LifelongPosterior(
        components=tuple(components),
        log_w=log_w,
        finalists=tuple(finalists),
        output=out,
        learned_at=learned_at,
        X=task.X,
        z=z,
        succeeded=succeeded,
        failed=np.vstack([failed, past.failed]),
        failed_weight=np.append(np.ones(len(failed)), np.full(len(past.failed), FAIL_FAITH)),
    )
