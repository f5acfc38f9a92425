"""Randomness as an argument: every generator is derived from one seed and the names of what it is for.

A generator depends on (seed, names) alone, never on how often another one was used, so that a resumed
run draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seed:
    """A path of names below one root number."""

    root: int
    path: tuple[str | int, ...] = ()

    def __truediv__(self, name: str | int) -> Seed:
        return Seed(self.root, (*self.path, name))

    def rng(self) -> np.random.Generator:
        digest = hashlib.sha256(repr((self.root, self.path)).encode()).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def fresh_seed() -> Seed:
    """A seed nobody chose."""
    return Seed(int(np.random.SeedSequence().generate_state(1)[0]))
