"""Spaces: every value to the unit cube and back, conditions read off trials, and spaces that change."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lbo.axis import Axis
from lbo.errors import SpaceError
from lbo.growth import Shown, learn_space
from lbo.maths import networks
from lbo.space import Condition, Space, frame_map

BIG = 1e308
ODD_CHOICES = [None, True, False, 0, 1, 2, 0.0, 1.0, 0.5, math.nan, math.inf, "", "a", "1", "None", "True"]

finite = st.floats(-BIG, BIG)
positive = st.floats(5e-324, BIG)


def axis_of(distribution: BaseDistribution) -> Axis:
    return Axis("x", distribution, distribution)


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


@st.composite
def lines(draw) -> FloatDistribution:
    low, high = sorted([draw(finite), draw(finite)])
    return FloatDistribution(low, high)


@st.composite
def log_lines(draw) -> FloatDistribution:
    low, high = sorted([draw(positive), draw(positive)])
    return FloatDistribution(low, high, log=True)


@st.composite
def stepped_lines(draw) -> FloatDistribution:
    # Steps and ends with few digits, as people write them: Optuna counts steps in decimals and warns of a rest.
    step = draw(st.sampled_from([1e-3, 0.1, 0.25, 0.5, 3.0, 1e6, 1e305]))
    low = draw(st.integers(-50, 50)) * step
    return FloatDistribution(float(f"{low:.10g}"), float(f"{low + draw(st.integers(0, 400)) * step:.10g}"), step=step)


@st.composite
def integers(draw, *, low: int = -(2**62), high: int = 2**62, log: bool = False) -> IntDistribution:
    first = draw(st.integers(low, high))
    step = 1 if log else draw(st.sampled_from([1, 2, 7, 1000]))
    count = draw(st.one_of(st.integers(0, 20), st.integers(0, min(2**50, (high - first) // step))))
    return IntDistribution(first, first + count * step, log=log, step=step)


small_log_integers = integers(low=1, high=2**40, log=True)
categoricals = st.permutations(ODD_CHOICES).flatmap(
    lambda choices: st.integers(1, len(choices)).map(lambda k: CategoricalDistribution(choices[:k]))
)
distributions = st.one_of(
    lines(), log_lines(), stepped_lines(), integers(), integers(low=1, high=2**62, log=True), categoricals
)


def roomy(d: BaseDistribution) -> bool:
    """Whether doubles are dense in the range, so that a coordinate and its value say the same to rounding."""
    if not isinstance(d, FloatDistribution) or d.single():
        return True
    if d.log:
        return d.low > 1e-300 and d.high / 2 > d.low
    return d.high / 2 - d.low / 2 > 1e-3 * max(abs(d.low), abs(d.high), 1e-300)


roomy_distributions = distributions.filter(roomy)


def grid_values(d: BaseDistribution, shares: list[float]) -> list[Any]:
    """Some values of a discrete distribution, the first and the last among them."""
    if isinstance(d, CategoricalDistribution):
        return list(d.choices)
    assert isinstance(d, FloatDistribution | IntDistribution)
    assert d.step is not None
    last = round(d.high / d.step - d.low / d.step) if isinstance(d, FloatDistribution) else (d.high - d.low) // d.step
    values = [min(d.low + int(share * last) * d.step, d.high) for share in shares]
    return [d.low, d.high, *(v for v in values if math.isfinite(v))]


shares = st.lists(st.floats(0, 1), max_size=5)


@given(st.one_of(integers(), small_log_integers, categoricals), shares)
def test_discrete_values_come_back_exactly(distribution: BaseDistribution, shares: list[float]) -> None:
    axis = axis_of(distribution)
    values = grid_values(distribution, shares)
    u = axis.to_unit(values)
    assert ((u >= 0) & (u <= 1)).all()
    assert all(same(axis.from_unit(float(x)), value) for x, value in zip(u, values, strict=True))


@given(stepped_lines(), shares)
def test_stepped_floats_come_back_as_the_values_of_their_grid(d: FloatDistribution, shares: list[float]) -> None:
    axis = axis_of(d)
    assert d.step is not None
    for value in grid_values(d, shares):
        back = axis.from_unit(float(axis.to_unit([value])[0]))
        assert back == pytest.approx(value, rel=1e-12, abs=1e-9 * d.step)
        assert d._contains(back)
        assert axis.from_unit(float(axis.to_unit([back])[0])) == back


@given(st.one_of(lines(), log_lines()), st.floats(0, 1))
def test_floats_come_back_to_rounding(d: FloatDistribution, share: float) -> None:
    value = min(max(d.low * (1 - share) + d.high * share, d.low), d.high)
    axis = axis_of(d)
    back = axis.from_unit(float(axis.to_unit([value])[0]))
    assert isinstance(back, float)
    assert d.low <= back <= d.high
    if d.log:
        assert math.log(back) == pytest.approx(math.log(value), rel=1e-12, abs=1e-12)
    else:
        assert back / 2 == pytest.approx(value / 2, rel=1e-12, abs=1e-14 * (d.high / 2 - d.low / 2))


@given(distributions, st.floats(0, 1))
def test_every_coordinate_is_a_value_that_optuna_accepts(d: BaseDistribution, u: float) -> None:
    value = axis_of(d).from_unit(u)
    assert type(value) in ((int,) if isinstance(d, IntDistribution) else (float, int, str, bool, type(None)))
    if isinstance(d, CategoricalDistribution):
        assert any(value is choice for choice in d.choices)
    else:
        assert isinstance(d, FloatDistribution | IntDistribution)
        assert d.low <= value <= d.high
        assert d.step is None or isinstance(d, FloatDistribution) or (value - d.low) % d.step == 0


@given(roomy_distributions, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_snap_moves_onto_values_and_stays_there(d: BaseDistribution, u: list[float]) -> None:
    axis = axis_of(d)
    once = axis.snap(np.array(u))
    assert ((once >= 0) & (once <= 1)).all()
    np.testing.assert_array_equal(axis.snap(once), once)
    again = axis.to_unit([axis.from_unit(float(x)) for x in once])
    np.testing.assert_allclose(again, once, rtol=0, atol=1e-12)


@given(distributions)
def test_snap_leaves_nan_where_it_is(d: BaseDistribution) -> None:
    assert np.isnan(axis_of(d).snap(np.array([0.3, np.nan]))).tolist() == [False, True]


def test_a_small_range_of_large_integers_keeps_them_apart() -> None:
    axis = axis_of(IntDistribution(2**60, 2**60 + 3))
    values = [2**60 + k for k in range(4)]
    assert [axis.from_unit(float(u)) for u in axis.to_unit(values)] == values


@pytest.mark.parametrize(
    "d",
    [
        FloatDistribution(-BIG, BIG),
        FloatDistribution(-BIG, BIG, step=1e307),
        FloatDistribution(0, 5e-324),
        FloatDistribution(5e-324, 1.7976931348623157e308, log=True),
        FloatDistribution(0, 1e12, step=1e-12),
        IntDistribution(-(10**300), 10**300),
        IntDistribution(1, 10**300, log=True),
    ],
    ids=str,
)
def test_extreme_ranges_reach_both_ends(d: FloatDistribution | IntDistribution) -> None:
    axis = axis_of(d)
    assert axis.from_unit(0.0) == pytest.approx(d.low, rel=1e-9)
    assert axis.from_unit(1.0) == pytest.approx(d.high, rel=1e-9)
    np.testing.assert_allclose(axis.to_unit([d.low, d.high]), [0, 1], atol=0.03)


def test_equal_choices_of_different_types_are_told_apart_but_only_the_recorded_one_is_searched() -> None:
    # Optuna stores the first of True, 1 and 1.0 whichever was tried: the others would look untried for ever.
    axis = axis_of(CategoricalDistribution(["a", True, 1, 1.0]))
    assert len(set(axis.to_unit([True, 1, 1.0]))) == 3
    reachable = {axis.from_unit(float(u)) for u in axis.snap(np.linspace(0, 1, 50))}
    assert reachable == {"a", True}
    assert all(same(axis.from_unit(float(u)), True) for u in axis.snap(axis.to_unit([True, 1, 1.0])))


def test_a_numpy_choice_is_the_plain_one() -> None:
    """Storages give back plain numbers for NumPy's."""
    plain = axis_of(CategoricalDistribution([0.5, 1.5]))
    assert plain.from_unit(float(plain.to_unit([np.float64(1.5)])[0])) == 1.5
    fancy = axis_of(CategoricalDistribution([np.float64(0.5), np.float64(1.5)]))
    np.testing.assert_array_equal(frame_map(Space((plain,)), Space((fancy,)))[0], np.eye(2))


def test_log_scaled_integers_too_large_for_their_logarithm_are_a_continuum() -> None:
    axis = axis_of(IntDistribution(1, 2**51, log=True))
    u = axis.snap(np.linspace(0, 1, 1000))
    np.testing.assert_array_equal(axis.snap(u), u)


def test_small_integers_are_told_apart_on_a_range_too_long_to_count() -> None:
    axis = axis_of(IntDistribution(1, 2**60, log=True))
    assert axis.cells == 0
    u = axis.snap(np.linspace(0, 0.1, 100))
    np.testing.assert_allclose(axis.to_unit([axis.from_unit(float(x)) for x in u]), u, rtol=0, atol=1e-12)


def test_an_unknown_choice_is_as_good_as_none() -> None:
    assert np.isnan(axis_of(CategoricalDistribution(["a", "b"])).to_unit(["c", "a"])).tolist() == [True, False]


def test_an_unknown_distribution_names_the_cure() -> None:
    class Normal(BaseDistribution):
        def to_internal_repr(self, param_value_in_external_repr: Any) -> float:
            return float(param_value_in_external_repr)

        def single(self) -> bool:
            return False

        def _contains(self, param_value_in_internal_repr: float) -> bool:
            return True

    with pytest.raises(SpaceError, match=r"'x' has a Normal. Use trial.suggest_float"):
        axis_of(Normal())


# The joint space


def space_of(**distributions: BaseDistribution) -> Space:
    return Space(tuple(Axis(name, d, d) for name, d in sorted(distributions.items())))


@given(categoricals)
def test_different_choices_are_a_distance_one_apart(d: CategoricalDistribution) -> None:
    assume(len(d.choices) > 1)
    space = space_of(x=d)
    X = space.encode(space.to_unit([{"x": choice} for choice in d.choices]))
    distance = np.linalg.norm(X[:, None] - X[None], axis=-1)
    np.testing.assert_allclose(distance, 1 - np.eye(len(X)), atol=1e-12)


@given(st.dictionaries(st.sampled_from("abcde"), roomy_distributions, min_size=1), st.integers(0, 2**32))
@settings(max_examples=50)
@example({"a": IntDistribution(1, 2**40 + 1, log=True)}, 0)
def test_samples_come_back_through_configurations(by_name: dict[str, BaseDistribution], seed: int) -> None:
    space = space_of(**by_name)
    U = space.sample(np.random.default_rng(seed), 4)
    np.testing.assert_allclose(space.to_unit([space.from_unit(u) for u in U]), U, rtol=0, atol=1e-12)
    assert space.encode(U).shape == (4, len(space.columns))


@given(st.dictionaries(st.sampled_from("abcde"), distributions))
def test_json_keeps_the_space(by_name: dict[str, BaseDistribution]) -> None:
    space = space_of(**by_name)
    again = Space.from_json(space.to_json())
    assert again == space
    assert [list(map(repr, axis.choices)) for axis in again.axes] == [list(map(repr, a.choices)) for a in space.axes]


def test_json_keeps_conditions() -> None:
    axes = space_of(a=CategoricalDistribution(["x", None, 1]), n=IntDistribution(1, 5), z=FloatDistribution(0, 1)).axes
    conditions = (("n", Condition("a", ("x", None))), ("z", Condition("n", low=2)))
    space = Space(axes, conditions)
    assert Space.from_json(space.to_json()) == space


def test_choices_branch_where_other_parameters_depend_on_them() -> None:
    space = Space(
        tuple(
            Axis(name, d, d)
            for name, d in {
                "depth": IntDistribution(1, 9),
                "layers": IntDistribution(1, 3),
                "model": CategoricalDistribution(["tree", "net"]),
                "solver": CategoricalDistribution(["p", "q"]),
                "width": IntDistribution(1, 9),
            }.items()
        ),
        (("depth", Condition("model", ("tree",))), ("width", Condition("layers", low=2))),
    )
    assert [column for column, branches in zip(space.columns, space.branching, strict=True) if branches] == [
        ("model", "tree"),
        ("model", "net"),
    ]


def test_a_parameter_that_cannot_vary_takes_no_column() -> None:
    space = space_of(a=CategoricalDistribution(["only"]), b=IntDistribution(3, 3), c=FloatDistribution(0, 1))
    assert space.encode(space.to_unit([{"a": "only", "b": 3, "c": 0.25}])).tolist() == [[0.25]]
    assert space.from_unit(np.array([0.1, 0.9, 0.25])) == {"a": "only", "b": 3, "c": 0.25}


def test_a_missing_number_is_in_the_middle_and_a_missing_choice_is_none_of_them() -> None:
    space = space_of(a=CategoricalDistribution(["x", "y"]), c=FloatDistribution(0, 1))
    assert space.encode(space.to_unit([{}])).tolist() == [[0, 0, 0.5]]


def test_the_grid_has_every_configuration() -> None:
    space = space_of(a=CategoricalDistribution(["x", "y", "z"]), b=IntDistribution(1, 100, log=True))
    rows = {tuple(space.from_unit(u).values()) for u in space.grid()}
    assert rows == {(a, b) for a in "xyz" for b in range(1, 101)}
    assert len(space.grid()) == space.size == 300


# Conditions


def learn(trials: list[dict[str, Any]], by_name: dict[str, BaseDistribution], **kwargs: Any) -> Space:
    """The space of whole trials that asked for what they have."""
    return learn_space([shown(params, by_name) for params in trials], **kwargs)


def shown(params: dict[str, Any], by_name: dict[str, BaseDistribution], *, whole: bool = True) -> Shown:
    return Shown(params, {name: by_name[name] for name in params}, whole)


BRANCHES: dict[str, BaseDistribution] = {
    "algo": CategoricalDistribution(["tree", "net", "linear"]),
    "depth": IntDistribution(1, 10),
    "layers": IntDistribution(1, 5),
    "kind": CategoricalDistribution(["a", "b"]),
    "beta": FloatDistribution(0, 1),
}


def test_a_categorical_parent_is_found() -> None:
    space = learn([{"algo": "tree", "depth": 3}, {"algo": "net"}, {"algo": "tree", "depth": 4}], BRANCHES)
    assert dict(space.conditions) == {"depth": Condition("algo", ("tree",))}
    U = space.snap(space.to_unit([{"algo": choice, "depth": 3} for choice in ("tree", "net", "linear")]))
    assert np.isnan(U[:, space.index["depth"]]).tolist() == [False, True, True]  # a branch not seen: not there


def test_a_boolean_parent_is_not_taken_for_a_number() -> None:
    by_name = {"on": CategoricalDistribution([False, 0.0, True, 1]), "x": FloatDistribution(0, 1)}
    space = learn([{"on": True, "x": 0.5}, {"on": False}], by_name)
    (rule,) = dict(space.conditions).values()
    assert len(rule.choices) == 1
    assert rule.choices[0] is True


def test_an_integer_threshold_is_found_in_both_directions() -> None:
    by_name = {"n": IntDistribution(1, 9), "many": FloatDistribution(0, 1), "few": FloatDistribution(0, 1)}
    trials = [{"n": n} | ({"many": 0.5} if n >= 4 else {"few": 0.5}) for n in (1, 3, 4, 8)]
    space = learn(trials, by_name)
    assert dict(space.conditions) == {"few": Condition("n", high=3), "many": Condition("n", low=4)}
    U = space.snap(space.to_unit([{"n": n, "few": 0.5, "many": 0.5} for n in range(1, 10)]))
    assert (~np.isnan(U[:, space.index["many"]])).tolist() == [n >= 4 for n in range(1, 10)]
    assert (~np.isnan(U[:, space.index["few"]])).tolist() == [n <= 3 for n in range(1, 10)]


@pytest.mark.parametrize("log", [False, True])
def test_a_threshold_next_to_the_end_of_a_long_range_is_sharp(log: bool) -> None:
    by_name = {"n": IntDistribution(1, 10_000, log=log), "x": FloatDistribution(0, 1)}
    space = learn([{"n": 9_998}, {"n": 9_999, "x": 0.5}], by_name)
    U = space.to_unit([{"n": n, "x": 0.5} for n in (9_997, 9_998, 9_999, 10_000)])
    assert space.active(U)[:, space.index["x"]].tolist() == [False, False, True, True]


def test_nested_conditions_go_down_together() -> None:
    trials = [
        {"algo": "linear"},
        {"algo": "tree", "kind": "a"},
        {"algo": "tree", "kind": "b", "beta": 0.5},
        {"algo": "net", "layers": 2},
    ]
    space = learn(trials, BRANCHES)
    rules = dict(space.conditions)
    assert rules["kind"] == Condition("algo", ("tree",))
    assert rules["beta"] == Condition("kind", ("b",))
    full = {"kind": "b", "beta": 0.5, "layers": 2}
    U = space.snap(space.to_unit([{"algo": "linear", **full}, {"algo": "tree", **full}]))
    there = [{n for n, x in zip(space.names, u, strict=True) if not math.isnan(x)} for u in U]
    assert there == [{"algo"}, {"algo", "kind", "beta"}]


def test_of_two_explanations_the_one_nearer_the_root_is_taken() -> None:
    trials = [{"algo": "linear"}, {"algo": "net", "kind": "a"}, {"algo": "tree", "kind": "b", "beta": 0.5}]
    assert dict(learn(trials, BRANCHES).conditions)["beta"] == Condition("algo", ("tree",))


def test_without_a_rule_a_parameter_counts_as_always_there() -> None:
    space = learn([{"algo": "tree", "beta": 0.1}, {"algo": "tree"}], BRANCHES)
    assert space.conditions == ()


def test_a_broken_trial_shows_what_it_has_but_not_what_it_lacks() -> None:
    whole = [{"algo": "tree", "depth": 3}, {"algo": "net", "layers": 1}]
    broken = shown({"algo": "tree"}, BRANCHES, whole=False)
    space = learn_space([*(shown(params, BRANCHES) for params in whole), broken])
    assert dict(space.conditions)["depth"] == Condition("algo", ("tree",))
    # Its presence does count: "linear" has a depth, although no whole trial says so.
    space = learn_space(
        [*(shown(params, BRANCHES) for params in whole), shown({"algo": "linear", "depth": 1}, BRANCHES, whole=False)]
    )
    assert set(dict(space.conditions)["depth"].choices) == {"tree", "linear"}


# A past


PAST = learn(
    [
        {"algo": "linear", "beta": 0.2},
        {"algo": "tree", "depth": 3, "beta": 0.1},
        {"algo": "net", "layers": 2, "beta": 0.3},
    ],
    BRANCHES,
)


def test_a_new_task_starts_with_the_space_of_the_past() -> None:
    assert learn_space([], PAST) == PAST


def test_a_branch_not_visited_yet_stays() -> None:
    space = learn([{"algo": "net", "layers": 1, "beta": 0.5}], BRANCHES, past=PAST)
    assert set(space.names) == set(PAST.names)
    assert dict(space.conditions)["depth"] == Condition("algo", ("tree",))
    assert dict(space.conditions)["layers"] == Condition("algo", ("net",))


def test_a_dropped_parameter_goes_but_memory_keeps_it() -> None:
    trials = [{"algo": "net", "layers": 1}]  # beta was always there
    assert "beta" not in learn(trials, BRANCHES, past=PAST).names
    assert "beta" in learn(trials, BRANCHES, past=PAST, keep_dropped=True).names
    broken = [shown({"algo": "net"}, BRANCHES, whole=False)]
    assert "beta" in learn_space(broken, PAST).names


def test_what_depends_on_a_dropped_parameter_goes_with_it() -> None:
    space = learn([{"beta": 0.5}], BRANCHES, past=PAST)
    assert space.names == ("beta",)


def test_an_added_parameter_and_a_whole_new_algorithm() -> None:
    by_name = BRANCHES | {"algo": CategoricalDistribution(["tree", "net", "linear", "forest"]),
                          "trees": IntDistribution(1, 9)}  # fmt: skip
    trials = [{"algo": "tree", "depth": 3, "beta": 0.5}, {"algo": "forest", "depth": 2, "trees": 3, "beta": 0.5}]
    space = learn(trials, by_name, past=PAST)
    rules = dict(space.conditions)
    assert rules["trees"] == Condition("algo", ("forest",))
    assert "depth" not in rules  # both algorithms seen have one, and nothing says that another has not
    assert rules["layers"] == Condition("algo", ("net",))
    space = learn([*trials, {"algo": "linear", "beta": 0.5}], by_name, past=PAST)
    assert set(dict(space.conditions)["depth"].choices) == {"tree", "forest"}


def test_the_past_completes_a_condition_but_only_where_it_is_not_contradicted() -> None:
    two = learn([{"algo": "tree", "depth": 3}, {"algo": "net", "depth": 1}, {"algo": "linear"}], BRANCHES)
    assert set(dict(two.conditions)["depth"].choices) == {"tree", "net"}
    by_name = BRANCHES | {"algo": CategoricalDistribution(["tree", "net", "linear", "new"])}
    trials = [{"algo": "new", "depth": 2}, {"algo": "linear"}]
    assert set(dict(learn(trials, by_name, past=two).conditions)["depth"].choices) == {"new", "tree", "net"}
    trials = [{"algo": "new", "depth": 2}, {"algo": "tree"}]
    assert set(dict(learn(trials, by_name, past=two).conditions)["depth"].choices) == {"new", "net"}


def test_ranges_widened_and_narrowed_within_a_task() -> None:
    wide, narrow = IntDistribution(0, 20, step=2), IntDistribution(7, 11, step=2)
    space = learn_space([Shown({"n": 20}, {"n": wide}, True), Shown({"n": 7}, {"n": narrow}, True)])
    (axis,) = space.axes
    assert (axis.frame.low, axis.frame.high, axis.frame.step) == (-1, 21, 2)  # type: ignore[attr-defined]
    reachable = {axis.from_unit(float(u)) for u in axis.snap(np.linspace(0, 1, 100))}
    assert reachable == {7, 9, 11}
    U = space.to_unit([{"n": n} for n in (0, 20, 7, 11)])
    assert len(np.unique(U)) == 4


def test_a_stepped_range_that_moves_raises_no_warning() -> None:
    old, new = FloatDistribution(-0.7, 0.5, step=0.1), FloatDistribution(0.1, 2.2, step=0.3)
    (axis,) = learn_space([Shown({"x": -0.7}, {"x": old}, True), Shown({"x": 0.4}, {"x": new}, True)]).axes
    assert axis.frame.low <= -0.7  # type: ignore[attr-defined]
    values = {round(axis.from_unit(float(u)), 9) for u in axis.snap(np.linspace(0, 1, 200))}
    assert values == {round(0.1 + 0.3 * k, 9) for k in range(8)}


@given(stepped_lines(), stepped_lines(), st.floats(0, 1))
def test_the_union_of_two_grids_holds_both(old: FloatDistribution, new: FloatDistribution, share: float) -> None:
    assume(old.step is not None and new.step is not None and 0.01 < old.step / new.step < 100)
    (axis,) = learn_space([Shown({"x": d.low}, {"x": d}, True) for d in (old, new)]).axes
    low, high = axis.frame.low, axis.frame.high  # type: ignore[attr-defined]
    slack = 1e-9 * new.step
    assert low - slack <= min(old.low, new.low)
    assert high + slack >= max(old.high, new.high)
    value = axis.from_unit(float(axis.snap(np.array([share]))[0]))
    assert new._contains(value)


def test_a_new_type_is_refused_with_the_cure() -> None:
    with pytest.raises(SpaceError, match=r"'depth' was IntDistribution.*is now FloatDistribution.*another name"):
        learn([{"algo": "tree", "depth": 0.5}], BRANCHES | {"depth": FloatDistribution(0, 1)}, past=PAST)
    with pytest.raises(SpaceError, match="keeps its type"):
        learn_space([Shown({"x": 1}, {"x": IntDistribution(0, 3)}, True),
                     Shown({"x": 1.0}, {"x": FloatDistribution(0, 3)}, True)])  # fmt: skip


# One space's columns as another's


OLD = {
    "choice": CategoricalDistribution(["a", None, "c"]),
    "gone": FloatDistribution(0, 1),
    "gone_choice": CategoricalDistribution(["u", "v"]),
    "log": FloatDistribution(1e-3, 1, log=True),
    "log_int": IntDistribution(2, 50, log=True),
    "n": IntDistribution(1, 9),
    "now_fixed": IntDistribution(0, 4),
    "now_one_choice": CategoricalDistribution([True, 1, "x"]),
    "step": FloatDistribution(0, 1, step=0.25),
    "x": FloatDistribution(-1, 1),
}
NEW = {
    "added": FloatDistribution(0, 1),
    "choice": CategoricalDistribution(["c", "d", "a", None]),
    "log": FloatDistribution(1e-5, 10, log=True),
    "log_int": IntDistribution(1, 80, log=True),
    "n": IntDistribution(-3, 30, step=3),
    "now_fixed": IntDistribution(3, 3),
    "now_one_choice": CategoricalDistribution([1]),
    "step": FloatDistribution(-1, 2),
    "x": FloatDistribution(-0.5, 0.5),
}
KEPT = [{"choice": "a", "log": 0.01, "log_int": 2, "n": 3, "step": 0.5, "x": 0.25},
        {"choice": None, "log": 1.0, "log_int": 50, "n": 9, "step": 0.0, "x": -0.5},
        {"choice": "c", "log": 1e-3, "log_int": 7, "n": 6, "step": 1.0, "x": 0.1}]  # fmt: skip
FIXED = {"now_fixed": 3, "now_one_choice": 1}


def test_the_frame_map_is_encoding_again() -> None:
    old, new = space_of(**OLD), space_of(**NEW)
    A, b = frame_map(old, new)
    trials = [kept | FIXED for kept in KEPT]
    X_new = new.encode(new.to_unit([trial | {"added": 0.9} for trial in trials]))
    np.testing.assert_allclose(X_new @ A + b, old.encode(old.to_unit(trials)), atol=1e-12)


def test_a_new_choice_is_none_of_the_old_ones() -> None:
    old, new = space_of(**OLD), space_of(**NEW)
    A, b = frame_map(old, new)
    trial = KEPT[0] | FIXED | {"choice": "d"}
    without = {name: value for name, value in trial.items() if name != "choice"}
    np.testing.assert_allclose(new.encode(new.to_unit([trial])) @ A + b, old.encode(old.to_unit([without])), atol=1e-12)


def test_a_number_that_changed_its_scale_is_imputed() -> None:
    A, b = frame_map(space_of(x=FloatDistribution(1, 2)), space_of(x=FloatDistribution(1, 2, log=True)))
    assert A.tolist() == [[0.0]]
    assert b.tolist() == [0.5]


def test_ranges_of_absurdly_different_size_do_not_overflow() -> None:
    for a, b in ((1e-300, BIG), (BIG, 1e-300)):
        A, c = frame_map(space_of(x=FloatDistribution(-a, a)), space_of(x=FloatDistribution(-b, b)))
        assert np.isfinite(A).all()
        assert np.isfinite(c).all()


def test_a_rebased_network_is_the_old_network_on_encoded_again_inputs() -> None:
    old, new = space_of(**OLD), space_of(**NEW)
    sizes = (len(old.columns), 7, 5)
    W = networks.init(np.random.default_rng(0), sizes, 3)
    A, b = frame_map(old, new)
    rebased = networks.rebase(W, sizes, A, b)
    trials = [kept | FIXED for kept in KEPT]
    old_X, new_X = old.encode(old.to_unit(trials)), new.encode(new.to_unit(trials))
    np.testing.assert_allclose(
        networks.features(rebased, new_X, (len(new.columns), 7, 5)), networks.features(W, old_X, sizes), atol=1e-10
    )
