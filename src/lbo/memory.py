"""Memory: what a stream carries from finished tasks to the next, and its form in storage.

In storage a memory is one JSON text: a format number, the model that made it, the space that frames its arrays, one
record per task, and arrays as base64 of little-endian float32 with their shapes. Arrays are rounded to float32 when
a memory is made, so that one read back is the one that was written, bit for bit. Nothing in it is ever executed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lbo.errors import MemoryDamaged
from lbo.space import Array, Space

FORMAT = 1


@dataclass(frozen=True)
class Record:
    """What is kept of one task."""

    task: str
    n_trials: int
    trials_digest: str  # of the trials that were folded in
    gates: tuple[float, ...]  # how much it used each network
    hyper: Mapping[str, float]
    best: tuple[tuple[Mapping[str, Any], float], ...]  # its best configurations and their values, best first


@dataclass(frozen=True)
class Memory:
    """What a stream knows after some tasks: arrays of its model (networks) and one small record per task."""

    model: Mapping[str, Any]  # name and settings of the model it belongs to
    space: Space  # the frame of the arrays' inputs
    records: tuple[Record, ...] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
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
        """Read a memory back; `MemoryDamaged` for anything that `to_bytes` could not have written."""
        try:
            record = json.loads(data)
            if record["format"] != FORMAT:
                raise MemoryDamaged(f"memory format {record['format']!r} is not known here (this is format {FORMAT})")
            return Memory(
                model=dict(record["model"]),
                space=Space.from_json(record["space"]),
                records=tuple(_record_from_json(r) for r in record["records"]),
                arrays={str(name): _array_from_json(a) for name, a in record["arrays"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise MemoryDamaged(f"stored memory does not read as one ({type(error).__name__}: {error})") from error

    def __str__(self) -> str:
        lines = [
            f"memory of {len(self.records)} tasks, model {self.model.get('name')}, "
            f"{self.networks} networks in use, {self.nbytes / 1024:.1f} KiB"
        ]
        width = max((len(record.task) for record in self.records), default=0)
        for record in self.records:
            gates = "".join("■" if gate > 0.5 else "·" for gate in record.gates)
            best = f"{record.best[0][1]:.6g}" if record.best else "none"
            lines.append(f"  {record.task:<{width}}  {record.n_trials:>5} trials  best {best:<12} {gates}")
        return "\n".join(lines)


def float32(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays as they will be read back: rounded to float32, held in float64 for the mathematics."""
    return {name: np.asarray(a, dtype=np.float32).astype(np.float64) for name, a in arrays.items()}


def _record_to_json(record: Record) -> dict[str, Any]:
    return {
        "task": record.task,
        "n_trials": record.n_trials,
        "digest": record.trials_digest,
        "gates": [round(float(gate), 4) for gate in record.gates],
        "hyper": {name: float(value) for name, value in record.hyper.items()},
        "best": [[dict(params), float(value)] for params, value in record.best],
    }


def _record_from_json(record: dict[str, Any]) -> Record:
    return Record(
        task=str(record["task"]),
        n_trials=int(record["n_trials"]),
        trials_digest=str(record["digest"]),
        gates=tuple(float(gate) for gate in record["gates"]),
        hyper={str(name): float(value) for name, value in record["hyper"].items()},
        best=tuple((dict(params), float(value)) for params, value in record["best"]),
    )


def _array_to_json(array: Array) -> dict[str, Any]:
    data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return {"shape": list(array.shape), "float32": base64.b64encode(data).decode()}


def _array_from_json(record: dict[str, Any]) -> Array:
    data = base64.b64decode(record["float32"], validate=True)
    shape = tuple(int(n) for n in record["shape"])
    if min(shape, default=0) < 0 or len(data) != 4 * int(np.prod(shape)):
        raise MemoryDamaged(f"an array of shape {shape} cannot have {len(data)} bytes")
    return np.frombuffer(data, dtype="<f4").reshape(shape).astype(np.float64)
