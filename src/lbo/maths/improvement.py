"""Expected improvement of a standard normal variable, accurate however unlikely an improvement is.

z      (...)   how far the value to be beaten lies above the mean, in deviations
phi, Phi       density and distribution function of the standard normal
h              h(z) = E max(z - e, 0) for e ~ N(0, 1) = phi(z) + z Phi(z);    h' = Phi,  (log h)' = Phi / h
log h(z)       z < LOWEST                -z^2/2 - log(2 pi)/2 - 2 log|z| + log(1 - 3/z^2 + 15/z^4 - 105/z^6 + 945/z^8)
               LOWEST <= z <= HIGHEST    cubic between nodes, from log h and its slope there: off by less than 1e-10
               HIGHEST < z               log z
One smooth function of one variable is looked up in the time of a few additions; special functions, of which log h needs
two, would take as long as a covariance with fifty trials.
"""

import math

import numpy as np

from lbo.maths import Array

LOWEST, HIGHEST = -30.0, 8.0
STEP = 1.0 / 128.0


def _cubics() -> Array:
    """(4, intervals) of each interval between nodes: c0 + c1 t + c2 t^2 + c3 t^3, t from 0 to 1."""
    z = np.arange(LOWEST, HIGHEST + STEP, STEP)
    phi = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    Phi = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    h = phi + z * Phi  # three of sixteen digits cancel at LOWEST
    f, slope = np.log(h), STEP * Phi / h
    rise = np.diff(f)
    return np.array([f[:-1], slope[:-1], 3 * rise - 2 * slope[:-1] - slope[1:], slope[:-1] + slope[1:] - 2 * rise])


_CUBICS = _cubics()


def log_h(z: Array) -> Array:
    """log E max(z - e, 0) for e ~ N(0, 1); NaN stays NaN."""
    steps = (np.fmin(np.fmax(z, LOWEST), HIGHEST) - LOWEST) / STEP  # where z is NaN, any interval will do
    interval = np.minimum(steps.astype(np.intp), _CUBICS.shape[1] - 1)
    c0, c1, c2, c3 = _CUBICS[:, interval]
    t = steps - interval
    value = c0 + t * (c1 + t * (c2 + t * c3))
    outside = ~((z >= LOWEST) & (z <= HIGHEST))
    if outside.any():
        value[outside] = _log_h_outside(z[outside])
    return np.asarray(value)


def _log_h_outside(z: Array) -> Array:
    """Where an improvement is next to impossible, or next to sure."""
    below, above = np.minimum(z, LOWEST), np.maximum(z, HIGHEST)
    w = below**-2
    series = np.log1p(-w * (3 - w * (15 - w * (105 - w * 945))))
    tail = -0.5 * below**2 - 0.5 * np.log(2 * np.pi) + np.log(w) + series
    return np.where(z > HIGHEST, np.log(above), tail)  # of NaN: NaN
