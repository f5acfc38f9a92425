"""Output transforms: increasing, inverted exactly enough, and with the right Jacobian, at any size of values."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lbo.models.output import CROWD, Output, plain, sparsity, warped, weighted_median

BOTH = pytest.mark.parametrize("fitted", [plain, warped], ids=["plain", "warped"])
SIZES = st.sampled_from([1e300, 1e150, 1e6, 1.0, 1e-6, 1e-150, 1e-300])
VALUES = st.lists(st.floats(-1, 1, allow_subnormal=False).map(lambda x: round(x, 6)), min_size=1, max_size=20)
WITH_FAILURES = st.lists(st.one_of(st.just(np.nan), st.floats(-100, 100)), max_size=12)

any_values = settings(max_examples=60, deadline=None, derandomize=True)


@BOTH
@any_values
@given(values=VALUES, size=SIZES)
@example(values=[1.0, 1.0, 1.0], size=1e300)
@example(values=[-1.0, 1.0], size=1e300)
@example(values=[0.0], size=1.0)
def test_greater_values_are_greater_and_nothing_is_lost_on_the_way_back(fitted, values, size):
    y = np.sort(np.array(values)) * size
    out = fitted(y, 1.0)
    z = out.to_z(y)
    assert np.isfinite(z).all()
    different = np.diff(y) > 1e-9 * np.abs(y).max()
    assert (np.diff(z) >= 0).all()
    # Where all values are alike, the width is not theirs and may be far too large to tell them apart.
    assert (np.diff(z)[different] > 0).all()
    np.testing.assert_allclose(out.to_user(z), y, rtol=1e-9, atol=1e-9 * np.abs(y).max())


@BOTH
@any_values
@given(values=VALUES, size=SIZES)
def test_units_do_not_matter(fitted, values, size):
    y = np.array(values)
    if np.ptp(y) < 1e-3:
        return
    np.testing.assert_allclose(fitted(y * size, 1.0).to_z(y * size), fitted(y, 1.0).to_z(y), rtol=1e-6, atol=1e-9)


@BOTH
def test_log_jacobian_is_that_of_numerical_derivatives(fitted):
    y = np.random.default_rng(0).gumbel(3.0, 5.0, 15)
    out = fitted(y, 1.0)
    y, h = y[np.abs(y - out.centre) > 1e-3], 1e-5  # the warped map's second derivative jumps at its centre
    slopes = (out.to_z(y + h) - out.to_z(y - h)) / (2 * h)
    assert out.log_jacobian(y) == pytest.approx(np.log(slopes).sum(), rel=1e-6)


def test_log_jacobian_passes_over_failures():
    y = np.array([1.0, np.nan, 4.0, 2.0])
    for out in (plain(y, 1.0), warped(y, 1.0)):
        assert out.log_jacobian(y) == out.log_jacobian(y[~np.isnan(y)])


def test_plain_has_mean_0_and_deviation_1_and_warped_its_median_at_0_and_its_best_at_minus_1():
    y = np.random.default_rng(1).gamma(0.5, 10.0, 31)
    z = plain(y, 1.0).to_z(y)
    np.testing.assert_allclose([z.mean(), z.std()], [0, 1], atol=1e-12)
    z = warped(y, 1.0).to_z(y)
    np.testing.assert_allclose([np.median(z), z.min()], [0, -1], atol=1e-12)


def test_warping_draws_in_the_bad_half_only():
    y = np.array([0.0, 1.0, 2.0, 1000.0, 1e6])
    out = warped(y, 1.0)
    np.testing.assert_allclose(out.to_z(y), [-1, -0.5, 0, np.log1p(499), np.log1p(499_999)])
    np.testing.assert_allclose(out.to_user(out.to_z(y)), y, atol=1e-9)


@any_values
@given(counted=st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=12))
def test_a_weighted_median_is_that_of_values_repeated(counted):
    values, times = (np.array(column, dtype=float) for column in zip(*counted, strict=True))
    assert weighted_median(values, times) == np.median(np.repeat(values, times.astype(int)))


def test_sparsity_is_the_inverse_of_how_many_trials_are_near_and_an_even_choice_of_them_tells_it():
    rng = np.random.default_rng(3)
    X = np.vstack([rng.random((100, 2)), 0.5 + 0.01 * rng.standard_normal((100, 2))])
    near = [[np.exp(-((x - other) ** 2).sum() / (2 * 2 * CROWD**2)) for other in X] for x in X]
    np.testing.assert_allclose(sparsity(X), 1 / np.sum(near, axis=1), rtol=1e-9)
    often = 1 / sparsity(np.repeat(X, 20, axis=0))  # of 4,000 trials, 400 are compared with; unbiased, not exact
    np.testing.assert_allclose(often.reshape(-1, 20).mean(axis=1), 20 / sparsity(X), rtol=1e-9)
    assert not len(sparsity(np.empty((0, 2))))


def test_the_warp_stays_at_the_median_over_the_space_when_trials_crowd_about_the_minimum():
    rng = np.random.default_rng(2)
    everywhere, crowd = rng.random((30, 3)), 0.5 + 0.01 * rng.standard_normal((70, 3))
    X = np.vstack([everywhere, crowd])
    y = ((X - 0.5) ** 2).sum(axis=1)
    low, high = np.quantile(y[:30], [0.25, 0.75])  # trials at the edge have fewer neighbours and count a little more
    assert low < warped(y, 1.0, sparsity(X)).centre < high
    assert warped(y, 1.0).centre < y[:30].min()


@BOTH
@any_values
@given(values=WITH_FAILURES)
def test_failures_are_as_bad_as_the_worst_and_at_least_1(fitted, values):
    y = np.array(values, dtype=float)
    z = fitted(y, 1.0).to_z(y)
    failed = np.isnan(y)
    assert np.isfinite(z).all()
    assert (z[failed] == max(1.0, z[~failed].max(initial=-np.inf))).all()


@BOTH
def test_where_values_do_not_tell_the_width_is_the_pasts(fitted):
    assert fitted(np.array([3.0]), 7.0) == Output(3.0, 7.0, fitted is warped)
    assert fitted(np.array([3.0, 3.0]), 7.0).width == 7.0
    assert fitted(np.array([np.nan]), 7.0) == Output(0.0, 7.0, fitted is warped)


def test_a_width_is_never_below_what_doubles_tell_apart():
    # Else a trial that differs from twenty alike ones of 1e300 is 1e300 widths away, and squares of that overflow.
    out = plain(np.full(20, 1e300), 1.0)
    assert abs(out.to_z(np.array([-1e300]))[0]) < 1e13


def test_small_differences_of_large_values_keep_their_digits():
    y = 1e9 + np.array([0.0, 1.0, 2.0, 3.0]) * 1e-3
    z = Output(1e9, 1e-3, False).to_z(y)
    np.testing.assert_allclose(z, (y - 1e9) / 1e-3, rtol=1e-12)


@BOTH
def test_values_at_the_ends_of_what_doubles_hold_are_no_exception(fitted):
    y = np.array([-1.5e308, -1.5e308, 1.5e308, 0.0])
    out = fitted(y, 1.0)
    np.testing.assert_allclose(out.to_user(out.to_z(y)), y, rtol=1e-9, atol=1e295)
