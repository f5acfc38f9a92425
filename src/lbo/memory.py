"""Memory: what a stream carries from finished tasks to the next, and its form in storage.

In storage a memory is one JSON text: a format number, the model that made it, the space that frames its arrays, one
record per task, and arrays as base64 of little-endian float32 with their shapes. Nothing in it is ever executed.
Writing rounds (arrays to float32, gates to four decimals); a memory that was read is written back bit for bit.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lbo.errors import MemoryDamaged
from lbo.models.base import Model, settings
from lbo.space import Array, Space

FORMAT = 1
SHOWN = 20  # tasks, when a memory is printed
# What reading JSON that something else wrote, or damaged, can raise; base64's errors are ValueErrors.
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Record:
    """What is kept of one task."""

    task: str
    n_trials: int
    trials_digest: str  # of the trials that were folded in
    gates: tuple[float, ...]  # how much it used each network
    hyper: Mapping[str, float]
    best: tuple[tuple[Mapping[str, Any], float], ...]  # its best configurations and their values, best first


@dataclass(frozen=True, eq=False, repr=False)
class Memory:
    """What a stream knows after some tasks: arrays of its model (networks) and one small record per task.

    Two memories are equal if their bytes are.
    """

    model: Mapping[str, Any]  # name and settings of the model it belongs to
    space: Space  # the frame of the arrays' inputs
    records: tuple[Record, ...] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @staticmethod
    def empty(model: Model) -> Memory:
        """The memory of a stream that has nothing to remember yet."""
        return Memory(settings(model), Space(()))

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks it remembers, oldest first."""
        return [record.task for record in self.records]

    @property
    def sharing(self) -> Array:
        """(tasks, networks) how much each task used each network, from 0 to 1."""
        width = max((len(record.gates) for record in self.records), default=0)
        matrix = np.zeros((len(self.records), width))
        for row, record in zip(matrix, self.records, strict=True):
            row[: len(record.gates)] = record.gates
        return matrix

    @property
    def usage(self) -> Array:
        """(networks,) how many tasks used each."""
        return np.asarray((self.sharing > 0.5).sum(axis=0))

    @property
    def networks(self) -> int:
        """How many networks at least one task used."""
        return int((self.usage > 0).sum())

    def __eq__(self, other: object) -> bool:
        return self.to_bytes() == other.to_bytes() if isinstance(other, Memory) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @property
    def nbytes(self) -> int:
        """Size in storage."""
        return len(self.to_bytes())

    def to_bytes(self) -> bytes:
        record = {
            "format": FORMAT,
            "model": dict(self.model),
            "space": self.space.to_json(),
            "records": [_record_to_json(r) for r in self.records],
            "arrays": {name: _array_to_json(a) for name, a in self.arrays.items()},
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Memory:
        """Read a memory back; `MemoryDamaged` for what `to_bytes` cannot have written."""
        try:
            record = json.loads(data)
            if record["format"] != FORMAT:
                raise MemoryDamaged(f"memory format {record['format']!r} is not known here (this is format {FORMAT})")
            return Memory(
                model=dict(record["model"]),
                space=Space.from_json(record["space"]),
                records=tuple(_record_from_json(r) for r in record["records"]),
                arrays={name: _array_from_json(a) for name, a in record["arrays"].items()},
            )
        except _UNREADABLE as error:
            raise MemoryDamaged(f"stored memory does not read as one ({type(error).__name__}: {error})") from error

    def __str__(self) -> str:
        head = (
            f"memory of {counted(len(self.records), 'task')}, model {self.model['name']}, "
            f"{counted(self.networks, 'network')} in use, {self.nbytes / 1024:.1f} KiB"
        )
        shown = self.records[-SHOWN:]
        left_out = [f"  ... {len(self.records) - SHOWN} earlier ones ..."] if len(self.records) > SHOWN else []
        width = max((len(_short(record.task)) for record in shown), default=0)
        return "\n".join([head, *left_out, *(_line(record, width) for record in shown)])

    __repr__ = __str__


def _line(record: Record, width: int) -> str:
    gates = "".join("■" if gate > 0.5 else "·" for gate in record.gates)
    return f"  {_short(record.task):<{width}}  {record.n_trials:>5} trials  best {record.best[0][1]:<12.6g} {gates}"


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:39] + "…"


def counted(n: int, noun: str) -> str:
    """A number with its noun."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _record_to_json(record: Record) -> dict[str, Any]:
    return {
        "task": record.task,
        "n_trials": record.n_trials,
        "digest": record.trials_digest,
        "gates": [round(float(gate), 4) for gate in record.gates],
        "hyper": {name: float(f"{value:.6g}") for name, value in record.hyper.items()},
        "best": [[dict(params), float(value)] for params, value in record.best],
    }


def _record_from_json(record: dict[str, Any]) -> Record:
    return Record(
        task=str(record["task"]),
        n_trials=int(record["n_trials"]),
        trials_digest=str(record["digest"]),
        gates=tuple(_finite(gate) for gate in record["gates"]),
        hyper={name: _finite(value) for name, value in record["hyper"].items()},
        best=tuple((dict(params), _finite(value)) for params, value in record["best"]),
    )


def _finite(value: Any) -> float:
    if not math.isfinite(value):
        raise MemoryDamaged(f"a number in the stored memory is {value}")
    return float(value)


def _array_to_json(array: Array) -> dict[str, Any]:
    data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return {"shape": list(array.shape), "float32": base64.b64encode(data).decode()}


def _array_from_json(record: dict[str, Any]) -> Array:
    data = base64.b64decode(record["float32"], validate=True)
    array = np.frombuffer(data, dtype="<f4").reshape(record["shape"]).astype(np.float64)
    if list(array.shape) != record["shape"] or not np.isfinite(array).all():  # a side of -1 fits whatever came
        raise MemoryDamaged(f"an array of shape {record['shape']} in the stored memory is not one of finite numbers")
    return array
