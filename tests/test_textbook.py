"""Textbook functions: optima that nothing undercuts, and relatives as far apart as was asked for."""

import numpy as np
import pytest

from lbo.experiments import textbook
from lbo.experiments.textbook import FORMULAS, INSIDE
from lbo.seeds import Seed

EVERY = pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)


def around(centre, rng, n=20_000):
    """Points of the cube, and points ever nearer to one."""
    D = len(centre)
    near = centre + rng.standard_normal((n, D)) * 10.0 ** rng.uniform(-6, -1, (n, 1))
    return np.vstack([rng.random((n, D)), near])


@EVERY
@pytest.mark.parametrize("distance", [0.0, textbook.NEAR, textbook.FAR])
def test_no_point_undercuts_the_optimum_of_a_function_or_a_relative(formula, distance):
    rng = np.random.default_rng(5)
    f = textbook.relative(formula, distance, rng)
    optimum = formula.optimum + f.shift
    assert (optimum >= INSIDE - 1e-12).all()
    assert (optimum <= 1 - INSIDE + 1e-12).all()
    np.testing.assert_allclose(f(optimum[None]), formula.least, atol=1e-12)
    assert f(around(optimum, rng)).min() >= formula.least - 1e-12


@EVERY
def test_a_wrong_optimum_is_undercut(formula):
    rng = np.random.default_rng(5)
    wrong = formula.optimum + 0.01
    assert formula.at(around(wrong, rng)).min() < formula.at(wrong[None])[0]


def test_hartmann_is_the_one_of_the_literature():
    assert FORMULAS["hartmann"].least == pytest.approx(-3.32237, abs=1e-5)


def test_relatives_are_as_far_apart_as_was_asked_for():
    rng = np.random.default_rng(1)
    relatives = [textbook.relative(FORMULAS["levy"], 0.05, rng) for _ in range(500)]
    for deviations in (np.array([f.shift for f in relatives]), np.log([f.stretch for f in relatives])):
        assert deviations.std() == pytest.approx(0.05, rel=0.06)  # of 2,000 draws the error is 1.6 percent
        assert abs(deviations.mean()) < 0.005


def test_a_sequence_comes_again_from_its_seed_and_its_deviations_are_those_of_random_points():
    once, again, other = (textbook.sequence("ackley", 0.05, Seed(seed)) for seed in (1, 1, 2))
    U = np.random.default_rng(0).random((20_000, 5))
    assert [p.name for p in once] == [f"ackley-0.05/{t}" for t in range(5)]
    for p, q, r in zip(once, again, other, strict=True):
        np.testing.assert_array_equal(p.f(U), q.f(U))
        assert not np.allclose(p.f(U), r.f(U))
        assert p.std == pytest.approx(p.f(U).std(), rel=0.03)
