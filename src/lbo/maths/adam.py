"""Adam (Kingma and Ba, 2015) on one flat vector of parameters, to minimise.

g     (P,)  gradient          t  ()  steps taken
m, v  (P,)  running means of g and of g^2, b1 and b2 their decay rates
Several vectors go together as rows (A, P) with t (A, 1) of their own.
"""

from typing import NamedTuple

import numpy as np

from lbo.maths import Array


class State(NamedTuple):
    """What one step leaves for the next."""

    m: Array
    v: Array
    t: int | Array


def init(params: Array) -> State:
    """The state before the first step."""
    return State(np.zeros_like(params), np.zeros_like(params), 0)


def step(
    state: State, grad: Array, rate: float | Array, *, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> tuple[Array, State]:
    """The change to add to the parameters, and the next state; `rate` may differ by parameter."""
    t = state.t + 1
    m = b1 * state.m + (1.0 - b1) * grad
    v = b2 * state.v + (1.0 - b2) * grad * grad
    m_hat = m / (1.0 - b1**t)
    v_hat = v / (1.0 - b2**t)
    return -rate * m_hat / (np.sqrt(v_hat) + eps), State(m, v, t)
