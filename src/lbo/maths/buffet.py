"""Indian Buffet Process and Binary Concrete gates, in logit space.

alpha  ()    expected number of networks that a task uses
v, pi  (M,)  stick breaks v_k ~ Beta(alpha, 1), and pi_m = v_1 ... v_m the prior probability of gate m
gamma  (M,)  posterior odds of each gate, as log_gamma
u      (M,)  uniform noise          tau  ()  temperature
l      (M,)  logit of the relaxed gate z = sigmoid(l): a z within 1e-16 of 0 or 1 has lost what l still knows
a      (M,)  log_gamma - tau l, standard logistic under q
Z      (T, M)  hard gates of T tasks   counts (M,)  n_m, how many earlier tasks used network m
The stick-breaking form orders the networks and fixes M; the restaurant form has no order and lets M grow.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from lbo.maths import Array

# |log-odds| of the nearest double to a sure gate, -log 2^-53: beyond it pi and 1 - pi round to 0 and 1.
SURE = 53.0 * np.log(2.0)


def sticks(rng: np.random.Generator, alpha: float, M: int) -> Array:
    """Draw pi from the stick-breaking prior."""
    v = rng.beta(alpha, 1.0, M)
    return np.asarray(np.cumprod(v), dtype=float)


def log_odds(pi: Array) -> Array:
    """log pi / (1 - pi), kept finite."""
    return np.asarray(np.clip(logit(pi), -SURE, SURE))


def concrete(log_gamma: Array, u: Array, tau: float) -> Array:
    """l, a sample of the relaxed gates; dl / dlog_gamma is 1 / tau."""
    return np.asarray((log_gamma + logit(u)) / tau)


def log_density(l: Array, log_gamma: Array, tau: float) -> Array:
    """log q(l) of each gate."""
    a = log_gamma - tau * l
    return np.asarray(np.log(tau) + a - 2.0 * np.logaddexp(0.0, a))


def log_density_grad(l: Array, log_gamma: Array, tau: float) -> tuple[Array, Array, Array]:
    """log q(l) of each gate, and its derivatives: value, dl, dlog_gamma."""
    a = log_gamma - tau * l
    da = 1.0 - 2.0 * expit(a)
    return log_density(l, log_gamma, tau), -tau * da, da


def gate_kl(l: Array, log_gamma: Array, pi: Array, tau: float) -> float:
    """KL from gates to prior, estimated by one sample: sum_m log q(l_m) - log p(l_m)."""
    return float(np.sum(log_density(l, log_gamma, tau) - log_density(l, log_odds(pi), tau)))


def gate_kl_grad(l: Array, log_gamma: Array, pi: Array, tau: float) -> tuple[float, Array, Array]:
    """The estimate and its partial derivatives: value, dl, dlog_gamma.

    Where l came from `concrete`, the whole derivative by log_gamma is dl / tau + dlog_gamma.
    """
    log_q, dl_q, dlog_gamma = log_density_grad(l, log_gamma, tau)
    log_p, dl_p, _ = log_density_grad(l, log_odds(pi), tau)
    return float(np.sum(log_q - log_p)), dl_q - dl_p, dlog_gamma


def restaurant(rng: np.random.Generator, alpha: float, T: int) -> NDArray[np.bool_]:
    """Draw Z: task t takes network m with probability n_m / t, and Poisson(alpha / t) new ones."""
    Z = np.zeros((T, 0), dtype=bool)
    for t in range(1, T + 1):
        Z[t - 1] = rng.random(Z.shape[1]) < Z.sum(axis=0) / t
        new = np.zeros((T, rng.poisson(alpha / t)), dtype=bool)
        new[t - 1] = True
        Z = np.hstack([Z, new])
    return Z


def restaurant_log_odds(counts: Array, t: int, alpha: float) -> Array:
    """Prior log-odds that task t, counted from 1, uses each network: n_m / t, or its share of the new ones.

    The Poisson(alpha / t) new networks fall evenly on those that nobody has used (n_m = 0), and such a
    network is used if at least one falls on it.
    """
    unused = counts == 0
    share = alpha / (t * max(int(unused.sum()), 1))
    pi = np.where(unused, -np.expm1(-share), counts / t)
    return log_odds(pi)
