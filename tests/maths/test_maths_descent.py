"""Descent in a box against SciPy's, on functions whose minima are known, and on ones that it can only refuse."""

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from lbo.maths import descent

WIDE = np.full(4, 50.0)


def from_rosenbrock(x, low, high, curvature=1.0, steps=500, ftol=0.0):
    return descent.minimise(
        lambda x: (rosen(x), rosen_der(x)), x, low, high,
        curvature=np.full(len(x), curvature), steps=steps, ftol=ftol,
    )  # fmt: skip


def quadratic(rng, P=6):
    """A convex one whose minimum lies outside the box in about half of the coordinates."""
    M = rng.normal(size=(P, P))
    A, centre = M @ M.T + 0.1 * np.eye(P), rng.normal(scale=1.5, size=P)
    return lambda x: (0.5 * float((x - centre) @ A @ (x - centre)), A @ (x - centre))


@pytest.mark.parametrize("curvature", [1.0, 1e-3, 1e4])
def test_minimum_of_rosenbrock_is_found_whatever_the_guess_at_its_curvature(rng, curvature):
    found = from_rosenbrock(rng.uniform(-2, 2, 4), -WIDE, WIDE, curvature)
    ends = [np.ones(4), np.array([-0.7756, 0.6131, 0.3821, 0.1460])]  # the minimum, and the one local minimum
    assert min(np.abs(found.x - end).max() for end in ends) < 1e-3


def test_value_is_the_objective_there(rng):
    found = from_rosenbrock(rng.uniform(-2, 2, 4), -WIDE, WIDE)
    assert found.value == rosen(found.x)


def test_quadratics_in_a_box_end_where_scipys_do(rng):
    low, high = -np.ones(6), np.ones(6)
    for _ in range(50):
        f, start = quadratic(rng), rng.uniform(-1, 1, 6)
        found = descent.minimise(f, start, low, high, curvature=np.ones(6), steps=200, ftol=0.0)
        reference = minimize(f, start, jac=True, bounds=list(zip(low, high, strict=True)), method="L-BFGS-B",
                             options={"ftol": 0.0, "gtol": 1e-10})  # fmt: skip
        np.testing.assert_allclose(found.x, reference.x, atol=1e-5)
        assert ((found.x >= low) & (found.x <= high)).all()


def test_gradient_at_the_end_points_out_of_the_box_or_is_zero(rng):
    low, high = np.array([-0.5, 0.2, -2.0, 0.0]), np.array([0.7, 0.9, 2.0, 0.1])
    found = from_rosenbrock(rng.uniform(low, high), low, high)
    g = rosen_der(found.x)
    held = ((found.x == low) & (g > 0)) | ((found.x == high) & (g < 0))
    assert held.any()
    assert np.abs(g[~held]).max() < 1e-4


def test_no_point_outside_the_box_is_asked_about(rng):
    low, high = np.array([-0.5, 0.2, -2.0, 0.0]), np.array([0.7, 0.9, 2.0, 0.1])
    asked = []

    def objective(x):
        asked.append(x.copy())
        return rosen(x), rosen_der(x)

    start = np.array([9.0, 9.0, 9.0, 9.0])
    descent.minimise(objective, start, low, high, curvature=np.ones(4), steps=50, ftol=0.0)
    assert all(((x >= low) & (x <= high)).all() for x in asked)


def test_it_never_ends_above_its_start_and_stops_after_so_many_steps(rng):
    for steps in (0, 1, 3, 10):
        start = rng.uniform(-2, 2, 4)
        assert from_rosenbrock(start, -WIDE, WIDE, steps=steps).value <= rosen(start)
    assert from_rosenbrock(start, -WIDE, WIDE, steps=0).x.tolist() == start.tolist()


def test_a_wall_of_infinities_is_stepped_back_from():
    def objective(x):
        return (float(x[0]), np.ones(1)) if x[0] > 0.3 else (np.inf, np.full(1, np.nan))

    found = descent.minimise(objective, np.array([2.0]), np.array([-9.0]), np.array([9.0]),
                             curvature=np.full(1, 1e-3), steps=100, ftol=0.0)  # fmt: skip
    assert 0.3 < found.x[0] < 0.31


def test_a_gradient_of_the_wrong_sign_ends_the_search_at_the_start():
    start = np.full(2, 0.5)
    found = descent.minimise(lambda x: (float(x @ x), -2 * x), start, np.zeros(2), np.ones(2),
                             curvature=np.ones(2), steps=10, ftol=0.0)  # fmt: skip
    assert found.x.tolist() == start.tolist()


def test_a_good_guess_at_the_curvature_saves_evaluations():
    scales = np.array([1.0, 1e3, 1e-3, 50.0])

    def evaluations(curvature):
        count = 0

        def objective(x):
            nonlocal count
            count += 1
            return float(0.5 * scales @ x**2), scales * x

        found = descent.minimise(objective, np.full(4, 0.9), -WIDE, WIDE, curvature=curvature, steps=100, ftol=1e-12)
        assert found.value < 1e-2
        return count

    assert evaluations(scales) <= 4
    assert evaluations(np.ones(4)) > 8
