"""How fast an ask of the default model could be here: the arithmetic it does, over what this machine's BLAS does.

n       rows of a matrix            k  points predicted           entries  of covariance matrices
flops   Cholesky factor n^3 / 3, its inverse n^3 / 3, the matrix's inverse from that n^3 / 3, a prediction n^2 k
floor   flops at the speed of a large matrix product, and a square root and an exponential for every entry

Calls are counted where lbo makes them, so the count is of what the model does and not of what a formula says it should
do. Other products of matrices are not among them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from lbo.maths import gaussian, matern

LARGE = 512  # rows of the product that shows the machine's speed
REPEATS = 20


@dataclass
class Work:
    """What was counted."""

    flops: float = 0.0
    entries: float = 0.0
    evidences: float = 0.0  # evaluations of a model's evidence with its gradient

    def over(self, asks: int) -> Work:
        """Per ask."""
        return Work(self.flops / asks, self.entries / asks, self.evidences / asks)


@dataclass(frozen=True)
class Speed:
    """What the machine does, on one thread."""

    flops_per_second: float
    seconds_per_entry: float

    def floor(self, work: Work) -> float:
        """Seconds that the work takes at least."""
        return work.flops / self.flops_per_second + work.entries * self.seconds_per_entry


def whitener_flops(n: int) -> float:
    """A = L L^T, and L^-1."""
    return 2 * n**3 / 3


def inverse_flops(n: int) -> float:
    """A^-1 from L^-1."""
    return n**3 / 3


def predict_flops(n: int, k: int) -> float:
    """L^-1 B."""
    return float(n**2 * k)


@contextmanager
def counted() -> Iterator[Work]:
    """The work that lbo does inside."""
    work = Work()

    def whitener(A: Any) -> None:
        work.flops += whitener_flops(len(A))

    def inverse(W: Any) -> None:
        work.flops += inverse_flops(len(W))

    def predict(posterior: Any, Ks: Any, kss_diag: Any) -> None:
        work.flops += predict_flops(Ks.shape[1], len(Ks))

    def distances(S1: Any, S2: Any) -> None:
        work.entries += len(S1) * len(S2)

    def own_distances(S: Any) -> None:
        work.entries += len(S) ** 2

    def evidence(K: Any, y: Any) -> None:
        work.evidences += 1

    noted = {(gaussian, "whitener"): whitener, (gaussian, "inverse"): inverse, (gaussian, "predict"): predict,
             (matern, "_distances"): distances, (matern, "_own_distances"): own_distances,
             (gaussian, "log_evidence_grad"): evidence}  # fmt: skip
    with ExitStack() as stack:
        for (module, name), note in noted.items():
            stack.enter_context(patch.object(module, name, _noting(getattr(module, name), note)))
        yield work


def _noting(function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """A function that is noted before it is called."""

    def noting(*arguments: Any, **options: Any) -> Any:
        note(*arguments)
        return function(*arguments, **options)

    return noting


def measure_speed() -> Speed:
    """Of this machine, now."""
    A = np.random.default_rng(0).random((LARGE, LARGE))
    entries = A[:64].copy()  # small enough for the cache
    product = _fastest(lambda: A @ A)
    passes = _fastest(lambda: np.exp(np.sqrt(entries)))
    return Speed(2 * LARGE**3 / product, passes / entries.size)


def _fastest(run: Callable[[], object]) -> float:
    """Processor seconds of the fastest of many runs."""
    return min(_seconds(run) for _ in range(REPEATS))


def _seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start
