"""Every variant of the default model lacks its part, and only that."""

import numpy as np
import pytest

from lbo.experiments import ablation
from lbo.models import lifelong
from lbo.models.lifelong import Lifelong
from lbo.seeds import Seed
from model_contract import branin_task, remember
from test_models_lifelong import X_OF_A, conditional_task, memory_of_two, mixed_task

SEED = Seed(0)


def fitted(name, n=12):
    model = Lifelong() if name == "Lifelong" else ablation.VARIANTS[name]
    return model.fit(branin_task(n, seed=2), memory_of_two(), SEED, None)


def functions_used(posterior):
    return {c.m for c in posterior.components}


def test_the_default_has_all_parts():
    posterior = fitted("Lifelong")
    assert functions_used(posterior) - {None}
    assert len(posterior.components) > 1
    assert Lifelong().opening(branin_task(0, seed=2), memory_of_two()) is not None


def test_without_openings_nothing_is_tried_first():
    assert ablation.VARIANTS["without openings"].opening(branin_task(0, seed=2), memory_of_two()) is None


def test_without_looks_or_offsets_algorithms_are_choices_like_any_other():
    stuck, memory = conditional_task("aaaaa"), remember(Lifelong(), mixed_task(20, 0, X_OF_A))
    looks, offsets, openings = (ablation.VARIANTS[f"without {part}"] for part in ("looks", "offsets", "openings"))
    assert looks.opening(stuck, memory) is None
    assert offsets.opening(stuck, memory) == openings.opening(stuck, memory) == Lifelong().opening(stuck, memory)
    assert not any(c.branch.any() for c in offsets.fit(stuck, memory, SEED, None).components)
    assert all(c.branch.any() for c in looks.fit(stuck, memory, SEED, None).components)
    assert looks.opening(conditional_task(""), memory) == Lifelong().opening(conditional_task(""), memory) is not None


def test_without_functions_or_families_fewer_are_leaned_on():
    assert functions_used(fitted("without functions")) == {None}
    assert functions_used(fitted("without families")) <= {None, 0}


def test_without_opposites_no_task_is_a_function_turned_upside_down():
    memory, seen = memory_of_two(), branin_task(12, seed=2)
    opposite = lifelong.Task(seen.X, -seen.y, seen.space)
    signs = [
        {h.sign for h in model.fit(opposite, memory, SEED, None).finalists}
        for model in (Lifelong(), ablation.VARIANTS["without opposites"])
    ]
    assert signs == [{1.0, -1.0}, {1.0}]


def test_without_alone_a_function_is_always_leaned_on():
    assert None not in functions_used(fitted("without alone", n=2))
    assert None in functions_used(fitted("Lifelong", n=2))


def test_without_warp_values_stay_plain():
    y = np.exp(5 * np.random.default_rng(0).random(20))
    task = lifelong.Task(branin_task(20, seed=2).X, y, branin_task(20, seed=2).space)
    assert Lifelong().fit(task, None, SEED, None).output.warped
    assert not ablation.VARIANTS["without warp"].fit(task, None, SEED, None).output.warped


def test_without_doubt_there_is_one_component_less():
    assert len(fitted("without doubt").components) == len(fitted("Lifelong").components) - 1
    np.testing.assert_allclose(np.exp(fitted("without doubt").log_w).sum(), 1)


def test_without_exploring_nothing_is_a_stranger():
    default, variant = fitted("Lifelong", n=2), fitted("without exploring", n=2)
    assert default.stranger > 0 == variant.stranger
    X = branin_task(5, seed=3).X
    for one, other in zip(default.mixture(X), variant.mixture(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_priors_hyper_parameters_start_from_the_defaults():
    task, memory = branin_task(3, seed=2), memory_of_two()
    assert Lifelong()._recall(task, memory).theta
    assert not ablation.VARIANTS["without priors"]._recall(task, memory).theta


def test_without_scales_only_those_start_from_the_default():
    task, memory = branin_task(3, seed=2), memory_of_two()
    default, variant = (model._recall(task, memory) for model in (Lifelong(), ablation.VARIANTS["without scales"]))
    assert default.scales.tasks.min() > 0 == variant.scales.tasks.max()
    assert variant.theta == default.theta


def test_without_own_bests_all_hypotheses_are_held_against_one_value():
    default, variant = fitted("Lifelong"), fitted("without own bests")
    X = branin_task(5, seed=3).X
    for one, other in zip(default.mixture(X), variant.mixture(X), strict=True):
        np.testing.assert_array_equal(one, other)
    best = variant.mean(variant.X).min()
    np.testing.assert_allclose(variant.gain(X)[1], best - variant.mixture(X)[1], rtol=1e-12)
    assert np.ptp(default.gain(X)[1] + default.mixture(X)[1], axis=0).min() > 1e-4  # each its own


@pytest.mark.parametrize("name", ablation.VARIANTS)
def test_every_variant_consolidates(name):
    lesson = ablation.VARIANTS[name].consolidate(branin_task(12, seed=2), memory_of_two(), SEED)
    assert len(lesson.arrays["u"]) >= 2
