"""Networks with a Bayesian linear last layer, each task alone: DNGO (Snoek et al. 2015) and NN.

N, D        points, columns            U  units in each of the three tanh layers            T  tasks
X, z, task  (N, D), (N,), (N,)  points, their standardised values, and the task of each, in order of the tasks
W           (P,)      the network's weights, W0 those that training began with
w           (U+1,)    the linear layer, its bias last
Phi         (N, U+1)  the network's last layer, and a 1 for the bias
lam, beta   ()        precisions of w and of the noise; log_precisions (2,) or (T, 2) are their logarithms

DNGO trains the network under an ordinary linear layer by least squares and is Bayesian afterwards; NN and ABLR
integrate the linear layer out while they train. All hold the weights near W0, where the features of a random network
already do well: free ones grow sure of themselves on ten points. Networks are trained afresh at checkpoints of the
task's length only; trials in between enter the linear layer, which is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lbo.maths import adam, head, networks
from lbo.maths.networks import Sizes
from lbo.models.base import Lesson, Posterior, Scale, Task, checkpoint, plain_gain, standardise
from lbo.models.empirical import Prior, join, learn, log_normal
from lbo.models.gp import GROWTH, MAX_SEEN, N_INITIAL
from lbo.models.past_trials import Index, informative
from lbo.seeds import Seed
from lbo.space import Array

if TYPE_CHECKING:
    from lbo.memory import Memory

SQUARED_ERROR_STEPS = 250
EVIDENCE_STEPS = 150
RATE = 3e-3  # Adam's, for weights
PRECISION_RATE = 3e-2  # and for log precisions, which have farther to go
DECAY = 1e-3  # pull towards W0, against a mean squared error
ANCHOR = 0.3  # pull towards W0, against an evidence: this times the precision U that weights were drawn with


def layers(D: int, units: int) -> Sizes:
    """Three layers alike."""
    return (D, units, units, units)


def last_layer(W: Array, X: Array, sizes: Sizes) -> Array:
    """Phi."""
    return _with_bias(networks.features(W[None], X, sizes)[0])


def _with_bias(phi: Array) -> Array:
    return np.column_stack([phi, np.ones(len(phi))])


def descend(loss_grad: Callable[[Array], Array], params: Array, steps: int, rate: float | Array) -> Array:
    """Parameters after Adam's steps, `loss_grad` being the derivative of what is to be small."""
    moments = adam.init(params)
    for _ in range(steps):
        change, moments = adam.step(moments, loss_grad(params), rate)
        params = params + change
    return params


# Least squares


def squared_error_grad(params: Array, X: Array, z: Array, sizes: Sizes) -> tuple[float, Array]:
    """Half the mean squared error: value, dparams; params are W, then w."""
    P = networks.n_weights(sizes)
    W, w = params[None, :P], params[P:]
    phi, tape = networks.features_tape(W, X, sizes)
    Phi = _with_bias(phi[0])
    r = (Phi @ w - z) / len(z)
    dW = networks.features_vjp(W, tape, np.outer(r, w[:-1])[None], sizes)
    return 0.5 * len(z) * float(r @ r), np.append(dW, r @ Phi)


def train_squared_error(W0: Array, X: Array, z: Array, sizes: Sizes) -> Array:
    """W of least squared error plus decay."""
    start = np.append(W0, np.zeros(sizes[-1] + 1))

    def loss_grad(params: Array) -> Array:
        return squared_error_grad(params, X, z, sizes)[1] + DECAY * (params - start)

    return descend(loss_grad, start, SQUARED_ERROR_STEPS, RATE)[: len(W0)]


# Evidence


def log_evidence_grad(params: Array, X: Array, z: Array, task: Index, sizes: Sizes) -> tuple[float, Array]:
    """Sum of the tasks' log evidences: value, dparams; params are W, then log lam and log beta of each task."""
    P = networks.n_weights(sizes)
    W, precisions = params[None, :P], np.exp(params[P:].reshape(-1, 2))
    phi, tape = networks.features_tape(W, X, sizes)
    Phi, dphi = _with_bias(phi[0]), np.empty_like(phi)
    value, dprecisions = 0.0, np.empty_like(precisions)
    for t, (lam, beta) in enumerate(precisions):
        own = slice(*np.searchsorted(task, [t, t + 1]))
        evidence, dPhi, dlam, dbeta = head.evidence_grad(Phi[own], z[own], lam, beta)
        value += evidence
        dphi[0, own] = dPhi[:, :-1]
        dprecisions[t] = dlam, dbeta
    dW = networks.features_vjp(W, tape, dphi, sizes)
    return value, np.append(dW, precisions * dprecisions)


def precision_prior(units: int) -> Prior:
    """Of log lam and log beta: values of variance 1, and noise of at least 1e-5 of it."""
    return join(log_normal(1, 0.5 * units, 1.5, 1e-2, 1e4), log_normal(1, 1e3, 2.0, 1.0, 1e5))


def learn_precisions(Phi: Array, z: Array) -> Array:
    """log lam and log beta of largest evidence times prior, the features being what they are."""
    prior = precision_prior(Phi.shape[1])

    def evidence_grad(log_precisions: Array) -> tuple[float, Array]:
        lam, beta = np.exp(log_precisions)
        value, _, dlam, dbeta = head.evidence_grad(Phi, z, lam, beta)
        return value, np.array([lam * dlam, beta * dbeta])

    return learn(evidence_grad, prior, [prior.mean])


def train_evidence(W0: Array, X: Array, z: Array, task: Index, sizes: Sizes) -> Array:
    """W of largest evidence times prior, summed over tasks; each task's precisions are learned on the way."""
    P, T = len(W0), int(task.max()) + 1
    Phi = last_layer(W0, X, sizes)
    log_precisions = [learn_precisions(Phi[task == t], z[task == t]) for t in range(T)]
    prior = Prior(*(np.tile(part, T) for part in precision_prior(sizes[-1])))
    rate = np.repeat([RATE, PRECISION_RATE], [P, 2 * T])

    def loss_grad(params: Array) -> Array:
        inside = np.append(params[:P], np.clip(params[P:], prior.low, prior.high))
        _, d_evidence = log_evidence_grad(inside, X, z, task, sizes)
        _, d_prior = prior.log_density_grad(params[P:])
        return np.append(ANCHOR * sizes[-1] * (params[:P] - W0), -d_prior) - d_evidence

    return descend(loss_grad, np.append(W0, log_precisions), EVIDENCE_STEPS, rate)[:P]


# Posterior and models


@dataclass(frozen=True)
class NetworkPosterior:
    """The linear layer given its features at the trials seen."""

    W: Array
    learned_from: int  # the task's first trials that W was trained on
    sizes: Sizes
    lam: float
    beta: float
    Phi: Array
    z: Array
    linear: head.Posterior
    best: float
    scale: Scale

    stranger: ClassVar[float] = 0.0

    def mixture(self, X: Array) -> tuple[Array, Array, Array]:
        mean, var = head.predict(self.linear, last_layer(self.W, X, self.sizes))
        return np.zeros(1), mean[None], var[None]

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        return plain_gain(self.best, self.mixture(X))

    def believe(self, X: Array) -> NetworkPosterior:
        new = last_layer(self.W, X, self.sizes)
        mean = new @ self.linear.m
        Phi, z = np.vstack([self.Phi, new]), np.append(self.z, mean)
        linear = head.posterior(Phi, z, self.lam, self.beta)
        # The believed values count as seen; otherwise every worker would chase the same sure improvement.
        return replace(self, Phi=Phi, z=z, linear=linear, best=min(self.best, float(mean.min(initial=np.inf))))

    def to_user(self, values: Array) -> Array:
        return self.scale.to_user(values)

    def sharing(self, x: Array) -> dict[str, float]:
        return {}


def fit_network(
    task: Task, sizes: Sizes, previous: Posterior | None, train: Callable[[Task], Array]
) -> NetworkPosterior:
    """`train` gives W from the trials up to the last checkpoint; the linear layer comes from all of them."""
    start = checkpoint(len(task), N_INITIAL, GROWTH)
    if isinstance(previous, NetworkPosterior) and previous.learned_from == start:
        W = previous.W
    else:
        W = train(task.first(start))
    z, scale = standardise(task.y)
    Phi = last_layer(W, task.X, sizes)
    lam, beta = (float(x) for x in np.exp(learn_precisions(Phi, z)))
    linear = head.posterior(Phi, z, lam, beta)
    best = float((Phi @ linear.m).min())  # not the smallest observation: with noise that is a lucky one
    return NetworkPosterior(W, start, sizes, lam, beta, Phi, z, linear, best, scale)


def named(posterior: NetworkPosterior) -> dict[str, float]:
    """A posterior's hyper-parameters by name, for the task's record."""
    return {"log_lam": float(np.log(posterior.lam)), "log_beta": float(np.log(posterior.beta))}


def fresh_network(sizes: Sizes, seed: Seed) -> Array:
    """W as it is drawn."""
    return np.asarray(networks.init(seed.rng(), sizes, 1)[0])


def _seen_of(task: Task) -> tuple[Array, Array]:
    """The trials to train on: at most MAX_SEEN of them."""
    z, _ = standardise(task.y)
    kept = informative(task.X, z, MAX_SEEN)
    return task.X[kept], z[kept]


@dataclass(frozen=True)
class DNGO:
    """A network trained by least squares, its last layer Bayesian afterwards; nothing is shared between tasks."""

    name: ClassVar[str] = "DNGO"

    units: int = 50

    def n_initial(self, memory: Memory | None) -> int:
        return N_INITIAL

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return None

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> NetworkPosterior:
        sizes = layers(task.X.shape[1], self.units)

        def train(part: Task) -> Array:
            W0 = fresh_network(sizes, seed / "network" / len(part))
            return train_squared_error(W0, *_seen_of(part), sizes)

        return fit_network(task, sizes, previous, train)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        return Lesson({}, np.empty(0), named(self.fit(task, memory, seed, None)))


@dataclass(frozen=True)
class NN:
    """A network trained by its evidence, each task alone: the black line of the paper's run-time figure."""

    name: ClassVar[str] = "NN"

    units: int = 100

    def n_initial(self, memory: Memory | None) -> int:
        return N_INITIAL

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return None

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> NetworkPosterior:
        sizes = layers(task.X.shape[1], self.units)

        def train(part: Task) -> Array:
            X, z = _seen_of(part)
            alone = np.zeros(len(z), dtype=np.intp)
            return train_evidence(fresh_network(sizes, seed / "network" / len(part)), X, z, alone, sizes)

        return fit_network(task, sizes, previous, train)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        return Lesson({}, np.empty(0), named(self.fit(task, memory, seed, None)))
