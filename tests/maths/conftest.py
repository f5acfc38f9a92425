"""Autodiff in double precision, switched on around each test and off again after it."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def float64_autodiff() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20190301)
