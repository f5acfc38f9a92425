"""log h against integration, and where its pieces meet."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr

from lbo.maths import improvement
from lbo.maths.improvement import HIGHEST, LOWEST, STEP


def integral(z):
    """log h by integrating phi(z) t exp(z t - t^2 / 2) over t > 0.

    The integrand is positive, so nothing cancels, and t = s / c has it near s = 1 at every z.
    """
    c = max(1.0, -z)
    value, _ = quad(lambda s: s * np.exp(z * s / c - (s / c) ** 2 / 2), 0, np.inf, epsabs=0, epsrel=1e-12)
    return float(np.log(value) - 2 * np.log(c) - z**2 / 2 - np.log(2 * np.pi) / 2)


def test_it_is_the_integral_everywhere(rng):
    z = np.concatenate([rng.uniform(-60, 10, 200), [-1e8, -1e5, -1e3, LOWEST, HIGHEST, 0.0]])
    np.testing.assert_allclose(improvement.log_h(z), [integral(x) for x in z], rtol=1e-11, atol=1e-9)


def test_its_slope_is_that_of_the_function(rng):
    # (log h)' = Phi / h, by differences within an interval and across nodes alike.
    z, d = rng.uniform(-40, 10, 1000), 1e-4
    slope = (improvement.log_h(z + d) - improvement.log_h(z - d)) / (2 * d)
    np.testing.assert_allclose(slope, np.exp(log_ndtr(z) - improvement.log_h(z)), rtol=1e-6)


@pytest.mark.parametrize("seam", [LOWEST, LOWEST + STEP, -1.0, HIGHEST - STEP, HIGHEST])
def test_pieces_meet(seam):
    below, above = improvement.log_h(np.array([np.nextafter(seam, -np.inf), np.nextafter(seam, np.inf)]))
    assert above == pytest.approx(below, rel=1e-12, abs=1e-12)


def test_what_is_not_a_number_stays_so_and_infinity_is_sure():
    np.testing.assert_array_equal(improvement.log_h(np.array([np.nan, np.inf])), [np.nan, np.inf])
    assert improvement.log_h(np.array([0.0, np.nan, 0.0]))[2] == pytest.approx(-0.5 * np.log(2 * np.pi))


def test_shapes_are_kept():
    assert improvement.log_h(np.zeros((3, 0))).shape == (3, 0)
    assert improvement.log_h(np.full((2, 3), 9.0)).shape == (2, 3)
