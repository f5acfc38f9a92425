"""Memories as bytes: what is written is read back, and nothing else is read."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from cheap import Cheap
from lbo.axis import Axis
from lbo.errors import MemoryDamaged
from lbo.memory import FORMAT, Memory, Record
from lbo.space import Condition, Space

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")

choices = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
numbers = st.floats(allow_nan=False, allow_infinity=False)
records = st.builds(
    Record,
    task=st.text(min_size=1),
    n_trials=st.integers(2, 10_000),
    trials_digest=st.text("0123456789abcdef", min_size=16, max_size=16),
    gates=st.lists(st.floats(0, 1), max_size=5).map(tuple),
    hyper=st.dictionaries(st.text(max_size=5), numbers, max_size=3),
    best=st.lists(st.tuples(st.dictionaries(st.text(max_size=5), choices, max_size=4), numbers), min_size=1, max_size=3)
    .map(tuple),
)  # fmt: skip
arrays = st.dictionaries(
    st.text(max_size=5),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, min_side=0, max_side=4), elements=st.floats(-1e30, 1e30)),
    max_size=3,
)
SPACE = Space(
    tuple(
        Axis(name, frame, frame)
        for name, frame in {
            "c": CategoricalDistribution([None, True, 1.5, "text"]),
            "k": IntDistribution(1, 9, step=2),
            "x": FloatDistribution(1e-5, 1.0, log=True),
        }.items()
    ),
    (("k", Condition("c", (True, "text"))), ("x", Condition("k", low=3))),
)
memories = st.builds(
    Memory,
    model=st.just({"name": "Cheap", "width": 3}),
    space=st.sampled_from([Space(()), SPACE]),
    records=st.lists(records, max_size=3).map(tuple),
    arrays=arrays,
)


def example(n_tasks=2, **changes):
    best = (({"x": 0.5, "c": "text"}, 0.25), ({"x": 0.1, "c": None}, 0.5))
    fields = {
        "model": {"name": "Cheap", "width": 3},
        "space": SPACE,
        "records": tuple(Record(f"t{i}", 7, "0" * 16, (0.9, 0.2, 0.6), {"mean": 1.5}, best) for i in range(n_tasks)),
        "arrays": {"W": np.linspace(-1, 1, 6).reshape(2, 3), "empty": np.zeros((0, 4)), "scalar": np.array(0.1)},
    }
    return Memory(**{**fields, **changes})


def changed(**changes):
    """The example's bytes with other top-level fields."""
    return json.dumps({**json.loads(example().to_bytes()), **changes}).encode()


def with_array(**array):
    return changed(arrays={"W": {"shape": [2, 3], "float32": base64.b64encode(bytes(24)).decode(), **array}})


@given(memories)
def test_a_memory_that_was_read_is_written_back_bit_for_bit(memory):
    data = memory.to_bytes()
    read = Memory.from_bytes(data)
    assert read.to_bytes() == data
    assert read == memory
    assert hash(read) == hash(memory)
    assert read.tasks == memory.tasks
    for name, array in memory.arrays.items():
        assert read.arrays[name].shape == array.shape
        np.testing.assert_array_equal(read.arrays[name], array.astype(np.float32))


def test_reading_gives_every_field_back():
    read = Memory.from_bytes(example().to_bytes())
    assert read.model == {"name": "Cheap", "width": 3}
    assert read.space == SPACE
    assert read.records == example().records
    assert read.arrays["W"].dtype == np.float64
    assert read != example(n_tasks=3)
    assert read != "something else"


def test_bytes_are_plain_ascii_json_and_independent_of_order():
    memory = example()
    turned = example(arrays=dict(reversed(memory.arrays.items())))
    assert turned.to_bytes() == memory.to_bytes()
    assert memory.to_bytes().isascii()
    assert json.loads(memory.to_bytes())["format"] == FORMAT == 1
    assert memory.nbytes == len(memory.to_bytes())


DAMAGED = {
    "nothing": b"",
    "a future format": changed(format=FORMAT + 1),
    "no format": json.dumps({"a": 1}).encode(),
    "another's JSON": b'[{"study": 1}]',
    "a number": b"7",
    "no JSON": b"\x80\x04\x95pickle",
    "deep nesting": b"[" * 100_000,
    "a number beyond floats": changed(records=[{**json.loads(example().to_bytes())["records"][0], "gates": [10**400]}]),
    "arrays that are a list": changed(arrays=[]),
    "an array without a shape": changed(arrays={"W": {"float32": ""}}),
    "a negative shape": with_array(shape=[-2, -3]),
    "a side to guess": with_array(shape=[-1, 3]),
    "a shape of text": with_array(shape="23"),
    "a shape of fractions": with_array(shape=[2.0, 3.0]),
    "a shape too large": with_array(shape=[2, 4]),
    "a shape too large for integers": with_array(shape=[2**32, 2**32]),
    "bytes that are not base64": with_array(float32="*" * 32),
    "an array with NaN": with_array(float32=base64.b64encode(np.full(6, np.nan, dtype="<f4").tobytes()).decode()),
    "a record without a name": changed(records=[{}]),
    "a space of nothing": changed(space=None),
    "a parameter of no kind": changed(
        space={"parameters": {"x": {"name": "NoSuch", "attributes": {}}}, "conditions": []}
    ),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_cannot_have_been_written_is_not_read(data):
    with pytest.raises(MemoryDamaged) as error:
        Memory.from_bytes(data)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("gate", [np.nan, np.inf])
def test_numbers_that_are_none_are_not_read(gate):
    record = Record("t", 2, "0" * 16, (gate,), {}, (({}, 1.0),))
    with pytest.raises(MemoryDamaged, match=r"is (nan|inf)"):
        Memory.from_bytes(example(records=(record,)).to_bytes())


@given(st.integers(0, example().nbytes - 1))
def test_a_truncated_memory_is_not_read(length):
    with pytest.raises(MemoryDamaged):
        Memory.from_bytes(example().to_bytes()[:length])


@given(st.recursive(choices, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_foreign_json_is_not_read(value):
    with pytest.raises(MemoryDamaged):
        Memory.from_bytes(json.dumps(value).encode())


@given(st.sampled_from(["model", "space", "records", "arrays"]), choices)
def test_a_memory_with_a_foreign_part_is_not_read(part, value):
    with pytest.raises(MemoryDamaged):
        Memory.from_bytes(changed(**{part: value if value else 7}))


def test_sharing_usage_and_networks():
    memory = example()
    np.testing.assert_array_equal(memory.sharing, [[0.9, 0.2, 0.6]] * 2)
    assert memory.usage.tolist() == [2, 0, 2]
    assert memory.networks == 2
    later = Record("wide", 2, "0" * 16, (0.1, 0.1, 0.1, 0.8), {}, (({}, 1.0),))
    wider = example(records=(*memory.records, later))
    assert wider.sharing.shape == (3, 4)
    assert wider.sharing[0, 3] == 0
    assert wider.usage.tolist() == [2, 0, 2, 1]


def test_an_empty_memory():
    memory = Memory.empty(Cheap())
    assert (memory.tasks, memory.sharing.shape, memory.networks) == ([], (0, 0), 0)
    assert Memory.from_bytes(memory.to_bytes()) == memory
    assert str(memory) == "memory of 0 tasks, model Cheap, 0 networks in use, 0.1 KiB"


def test_printing():
    lines = str(example()).splitlines()
    assert lines[0].startswith("memory of 2 tasks, model Cheap, 2 networks in use, 0.9 KiB")
    assert lines[1].split() == ["t0", "7", "trials", "best", "0.25", "■·■"]
    assert repr(example()) == str(example())
    assert len(str(example(n_tasks=1000)).splitlines()) == 22
    assert "... 980 earlier ones ..." in str(example(n_tasks=1000))
    assert "1 task, " in str(example(n_tasks=1))
    long = Record("x" * 400, 2, "0" * 16, (), {}, (({}, 1.0),))
    assert max(map(len, str(example(records=(long,))).splitlines())) < 100
