"""The paper's model: gated tanh networks under one Bayesian linear head (Zhang et al. 2019, slips put right).

z        (N,)      standardised targets of this task
W        (M, P)    network weights           G  (M,)  log gamma, the gates' posterior log-odds
lam, beta          precisions of head and noise, learned as their logs
u, l, g  (M,)      uniform noise, logit gate, relaxed gate g = sigmoid(l)         pi  (M,)  prior gate probabilities
Phi      (N, A D*) features of the A active networks, each times its gate
n, Wbar, S         (M,), (M, P), (M,)  uses, mean weights and scatter of each network over past tasks: all that
                   the graph regulariser needs, however many tasks there were
Omega              sum_m g_m (n_m |W_m - Wbar_m|^2 + S_m)

The task maximises  log p(z | Phi) - KL(gates) - rho Omega  by Adam, one sample of u and pi per step. A network whose
gate is shut in a step takes no part in it, so a step costs what its active networks cost.

What the paper leaves open is settled here: new networks carry a Gaussian prior about their initial draw (`decay`), the
noise may not fall below `NOISE_FLOOR` of the targets' variance, and a task's networks are trained afresh at
checkpoints. Each was needed to keep small networks on ten points from growing sure of themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from lbo.maths import Array, adam, buffet, head, networks
from lbo.models.base import Lesson, Posterior, Scale, Task, checkpoint, plain_gain, standardise
from lbo.models.gp import N_INITIAL
from lbo.seeds import Seed
from lbo.space import frame_map

if TYPE_CHECKING:
    from lbo.memory import Memory

RHOS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
SHUT = 1e-3  # a relaxed gate below this contributes nothing that rounding would notice
NOISE_FLOOR = 1e-5
GATE_SAMPLES = 32


@dataclass(frozen=True)
class Paper:
    """Lifelong Bayesian Optimization exactly as published.

    Args:
        networks: M, where the buffet is cut off.
        units: width of the three tanh layers.
        alpha: expected number of networks per task.
        steps: N2, Adam steps per trial.
    """

    name: ClassVar[str] = "Paper"

    networks: int = 10
    units: int = 50
    alpha: float = 2.0
    steps: int = 60

    def n_initial(self, memory: Memory | None) -> int:
        return N_INITIAL

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return None

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> PaperPosterior:
        start = _restart(len(task))
        past = _recall(self, task, memory)
        if isinstance(previous, PaperPosterior) and previous.n_trials >= start:
            state, done, rho = previous.state, previous.n_trials, previous.rho
        else:
            rho = _rho(self, task, past, seed / "rho", previous)
            state, done = _begin(self, task.first(start), past, rho, seed / "begin" / start, RESTART_STEPS), start
        for n in range(done + 1, len(task) + 1):
            state = _train(self, task.first(n), past, rho, state, self.steps, (seed / "step" / n).rng())
        return _posterior(self, task, past, state, rho, (seed / "gates" / len(task)).rng())

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        posterior = self.fit(task, memory, seed / "fit", None)
        past, state = _recall(self, task, memory), posterior.state
        used = expit(state.G) > 0.5
        n = past.n + used
        # Welford's update, so that n, Wbar and S stay what the sums over the history would be.
        delta = np.where(used[:, None], state.W - past.Wbar, 0.0)
        Wbar = past.Wbar + delta / np.maximum(n, 1)[:, None]
        S = past.S + np.einsum("mp,mp->m", delta, np.where(used[:, None], state.W - Wbar, 0.0))
        hyper = {"log_lam": state.log_lam, "log_beta": state.log_beta, "rho": posterior.rho}
        return Lesson({"n": n, "Wbar": Wbar, "S": S}, expit(state.G), hyper)


RESTART_GROWTH = 1.5  # networks are trained afresh at 5, 7, 10, 15, 22, ... trials
RESTART_STEPS = 400
RHO_GROWTH = 3.0  # and rho is chosen anew at 5, 15, 45, ...: that costs as much as five restarts
RHO_FOLDS, RHO_STEPS = 4, 100
RATE = 1e-2  # Adam's rate for precisions and gates; weights move a third of it
DECAY = 0.03  # precision of a new network's prior about its initial draw, relative to the draw's own


class Past(NamedTuple):
    """What the regulariser knows, in this task's columns."""

    sizes: networks.Sizes
    n: Array
    Wbar: Array
    S: Array


class State(NamedTuple):
    """What training moves."""

    W: Array
    anchor: Array  # where W started; new networks are held near it
    G: Array
    log_lam: float
    log_beta: float


def _recall(model: Paper, task: Task, memory: Memory | None) -> Past:
    M = model.networks
    sizes = (task.X.shape[1], model.units, model.units, model.units)
    if memory is None or "n" not in memory.arrays:
        return Past(sizes, np.zeros(M), np.zeros((M, networks.n_weights(sizes))), np.zeros(M))
    old_sizes = (len(memory.space.columns), *sizes[1:])
    A, b = frame_map(memory.space, task.space)
    Wbar = networks.rebase(memory.arrays["Wbar"], old_sizes, A, b)
    return Past(sizes, memory.arrays["n"], Wbar, memory.arrays["S"])


def _restart(n: int) -> int:
    """How many trials there were when the networks of a task of n trials were last trained afresh."""
    return checkpoint(n, N_INITIAL, RESTART_GROWTH)


def _begin(model: Paper, task: Task, past: Past, rho: float, seed: Seed, steps: int) -> State:
    """A task's first fit: from the memory's weights for used networks, from a fresh draw for unused ones."""
    rng = (seed / "init").rng()
    fresh = networks.init(rng, past.sizes, model.networks)
    W = np.where((past.n > 0)[:, None], past.Wbar, fresh)
    # Gates start at the mean of their prior, but none so shut that no sample ever opens it.
    prior = (model.alpha / (1 + model.alpha)) ** np.arange(1, model.networks + 1)
    G = np.log(np.maximum(prior, 0.1) / (1 - prior))
    state = State(W, W.copy(), G, np.log(25.0), np.log(1e3))
    return _train(model, task, past, rho, state, steps, (seed / "train").rng())


def _train(
    model: Paper, task: Task, past: Past, rho: float, state: State, steps: int, rng: np.random.Generator
) -> State:
    z, _ = standardise(task.y)
    W = state.W.copy()
    m, v, t = np.zeros_like(W), np.zeros_like(W), np.zeros((len(W), 1))
    rest = np.concatenate([state.G, [state.log_lam, state.log_beta]])
    rest_moments = adam.init(rest)
    M = model.networks
    for _ in range(steps):
        u, pi = rng.random(M), buffet.sticks(rng, model.alpha, M)
        now = State(W, state.anchor, rest[:M], rest[M], rest[M + 1])
        active, dW, drest = elbo_grad(now, task.X, z, past, rho, u, pi)
        delta, rest_moments = adam.step(rest_moments, -drest, RATE)
        rest = _bounded(rest + delta, M)
        # Each network has an Adam of its own, which sleeps while its gate is shut.
        moments = adam.State(m[active], v[active], t[active])
        change, (m[active], v[active], t[active]) = adam.step(moments, -dW, RATE / 3)
        W[active] += change
    return State(W, state.anchor, rest[:M], float(rest[M]), float(rest[M + 1]))


def _bounded(rest: Array, M: int) -> Array:
    rest[:M] = np.clip(rest[:M], -8.0, 8.0)
    rest[M] = np.clip(rest[M], np.log(1e-2), np.log(1e4))
    rest[M + 1] = np.clip(rest[M + 1], np.log(1.0), -np.log(NOISE_FLOOR))
    return rest


def elbo_grad(
    state: State, X: Array, z: Array, past: Past, rho: float, u: Array, pi: Array, tau: float = 0.1
) -> tuple[NDArray[np.intp], Array, Array]:
    """The networks active in this sample, and the objective's derivatives: dW (A, P) of theirs, d(G, log precisions).

    `elbo` is the value it differentiates.
    """
    l = buffet.concrete(state.G, u, tau)
    g = expit(l)
    active = _active(g)
    phi, tape = networks.features_tape(state.W[active], X, past.sizes)
    lam, beta = np.exp(state.log_lam), np.exp(state.log_beta)
    _, dPhi, dlam, dbeta = head.evidence_grad(_gated(phi, g[active]), z, lam, beta)
    dphi_gated = dPhi.reshape(len(z), len(active), -1).transpose(1, 0, 2)
    dW = networks.features_vjp(state.W[active], tape, g[active, None, None] * dphi_gated, past.sizes)

    away = state.W[active] - past.Wbar[active]
    n = past.n[active]
    dW -= 2 * rho * (g[active] * n)[:, None] * away
    dW -= _decay(past, active)[:, None] * (state.W[active] - state.anchor[active])

    dg = np.zeros_like(g)
    dg[active] = np.einsum("anp,anp->a", dphi_gated, phi)
    dg[active] -= rho * (n * np.einsum("ap,ap->a", away, away) + past.S[active])
    _, dl_kl, dG_kl = buffet.gate_kl_grad(l, state.G, pi, tau)
    dl = dg * g * (1 - g) - dl_kl
    dG = dl / tau - dG_kl
    return active, dW, np.concatenate([dG, [lam * dlam, beta * dbeta]])


def elbo(state: State, X: Array, z: Array, past: Past, rho: float, u: Array, pi: Array, tau: float = 0.1) -> float:
    """log p(z | Phi) - KL - rho Omega - decay, for one sample of u and pi."""
    l = buffet.concrete(state.G, u, tau)
    g = expit(l)
    active = _active(g)
    Phi = _gated(networks.features(state.W[active], X, past.sizes), g[active])
    away, moved = state.W[active] - past.Wbar[active], state.W[active] - state.anchor[active]
    value = head.evidence(Phi, z, float(np.exp(state.log_lam)), float(np.exp(state.log_beta)))
    value -= buffet.gate_kl(l, state.G, pi, tau)
    value -= rho * omega(g[active], past.n[active], away, past.S[active])
    return value - 0.5 * float(_decay(past, active) @ np.einsum("ap,ap->a", moved, moved))


def omega(g: Array, n: Array, away: Array, S: Array) -> float:
    """The graph regulariser in its constant-size form."""
    return float(g @ (n * np.einsum("ap,ap->a", away, away) + S))


def _decay(past: Past, active: NDArray[np.intp]) -> Array:
    """Precision about the anchor: new networks only, since the regulariser holds the others."""
    width = past.sizes[1]
    return np.where(past.n[active] > 0, 0.0, DECAY * width)


def _active(g: Array) -> NDArray[np.intp]:
    active = np.flatnonzero(g > SHUT)
    return active if len(active) else np.array([int(g.argmax())])


def _gated(phi: Array, g: Array) -> Array:
    """Phi (N, A D*) from the active networks' features (A, N, D*)."""
    return np.ascontiguousarray((g[:, None, None] * phi).transpose(1, 0, 2)).reshape(phi.shape[1], -1)


def _rho(model: Paper, task: Task, past: Past, seed: Seed, previous: Posterior | None) -> float:
    """The regulariser's weight, kept until the trials are three times as many."""

    def chosen_at(n: int) -> int:
        return checkpoint(_restart(n), N_INITIAL, RHO_GROWTH)

    now = chosen_at(len(task))
    if isinstance(previous, PaperPosterior) and chosen_at(previous.n_trials) == now:
        return previous.rho
    return _choose_rho(model, task.first(now), past, seed / now)


def _choose_rho(model: Paper, task: Task, past: Past, seed: Seed) -> float:
    """The rho of least squared error on held-out trials; without a past the regulariser is zero anyway."""
    if not past.n.any() or len(task) < 4:
        return RHOS[-1] if not past.n.any() else RHOS[1]
    fold = np.arange(len(task)) % min(RHO_FOLDS, len(task))
    z, _ = standardise(task.y)
    errors = np.zeros(len(RHOS))
    for k in np.unique(fold):
        train, test = fold != k, fold == k
        part = Task(task.X[train], z[train], task.space)
        for i, rho in enumerate(RHOS):
            state = _begin(model, part, past, rho, seed / int(k), RHO_STEPS)
            posterior = _posterior(model, part, past, state, rho, (seed / "gates").rng())
            errors[i] += float(((posterior.to_user(posterior.mean(task.X[test])) - z[test]) ** 2).sum())
    return RHOS[int(errors.argmin())]


@dataclass(frozen=True)
class PaperPosterior:
    """A mixture over hard samples of the gates."""

    state: State
    past: Past
    patterns: tuple[NDArray[np.intp], ...]  # the active networks of each component
    heads: tuple[head.Posterior, ...]
    log_w: Array
    best: float
    scale: Scale
    n_trials: int
    rho: float
    X: Array
    z: Array

    stranger: ClassVar[float] = 0.0

    def mixture(self, X: Array) -> tuple[Array, Array, Array]:
        needed = np.unique(np.concatenate(self.patterns))
        phi = networks.features(self.state.W[needed], X, self.past.sizes)
        where = {int(m): i for i, m in enumerate(needed)}
        predictions = [
            head.predict(h, _gated(phi[[where[int(m)] for m in pattern]], np.ones(len(pattern))))
            for pattern, h in zip(self.patterns, self.heads, strict=True)
        ]
        mean, var = (np.array(part) for part in zip(*predictions, strict=True))
        return self.log_w, mean, var

    def mean(self, X: Array) -> Array:
        log_w, mean, _ = self.mixture(X)
        return np.asarray(np.exp(log_w) @ mean)

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        return plain_gain(self.best, self.mixture(X))

    def believe(self, X: Array) -> PaperPosterior:
        z = np.append(self.z, self.mean(X))
        return _with_heads(self, np.vstack([self.X, X]), z)

    def to_user(self, values: Array) -> Array:
        return self.scale.to_user(values)

    def sharing(self, x: Array) -> dict[str, float]:
        return {f"network {m}": round(float(p), 4) for m, p in enumerate(expit(self.state.G)) if p > 0.5}


def _posterior(
    model: Paper, task: Task, past: Past, state: State, rho: float, rng: np.random.Generator
) -> PaperPosterior:
    z, scale = standardise(task.y)
    Z = rng.random((GATE_SAMPLES, model.networks)) < expit(state.G)
    Z[~Z.any(axis=1), int(state.G.argmax())] = True  # a task uses at least one network
    unique, counts = np.unique(Z, axis=0, return_counts=True)
    patterns = tuple(np.flatnonzero(row) for row in unique)
    log_w = np.log(counts / counts.sum())
    empty = PaperPosterior(state, past, patterns, (), log_w, float(z.min()), scale, len(task), rho, task.X, z)
    return _with_heads(empty, task.X, z)


def _with_heads(posterior: PaperPosterior, X: Array, z: Array) -> PaperPosterior:
    state = posterior.state
    lam, beta = float(np.exp(state.log_lam)), float(np.exp(state.log_beta))
    phi = networks.features(state.W, X, posterior.past.sizes)
    heads = tuple(
        head.posterior(_gated(phi[pattern], np.ones(len(pattern))), z, lam, beta) for pattern in posterior.patterns
    )
    return replace(posterior, heads=heads, X=X, z=z)
