"""Stream: the tasks of one name in one Optuna storage, and the memory that is derived from their trials.

A task is a study tagged with its stream. Beside the tasks stands one more study, the stream's shelf, which has no
trials: its direction is the stream's, and its system attributes hold the newest memory.

    lbo:memory:SLOT:i   chunk i of the text in slot "a" or "b"
    lbo:memory          the marker, written last: which slot, how many chunks, their checksum

A new memory goes into the slot that the marker does not name, so whoever reads meanwhile, or after a crash, still
finds the old one whole. There is no lock: a memory is a function of the trials, and two workers write the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.storages import BaseStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.study import Study, StudyDirection
from optuna.trial import TrialState

from lbo.consolidate import fold
from lbo.errors import MemoryDamaged, StreamError
from lbo.memory import Memory
from lbo.models import default_model, from_settings
from lbo.models.base import Model, settings
from lbo.sampler import LBOSampler

DEFAULT_STORAGE = "sqlite:///lbo.db"
SHELF = ":memory:"  # the shelf's place in the stream, where tasks have their names
CHUNK = 60_000  # characters; MySQL's TEXT holds 65,535
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
_MAX_NAME = 500  # Optuna's study names are cut off at 512 characters

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _TaskStudy:
    """A task as the storage lists it."""

    study_id: int
    study_name: str
    task: str
    position: tuple[int, int]


@dataclass(frozen=True)
class _Shelved:
    """A stored memory, the tasks it is made of, and the task it was made for."""

    memory: Memory | None
    covers: tuple[tuple[int, int], ...]  # (study id, finished trials) of each task folded in, in order
    made_for: int | None


class Stream:
    """A named sequence of related tasks.

    Args:
        name: without slashes or control characters.
        storage: an Optuna storage or its URL.

    Example:
        >>> stream = lbo.Stream("heart", storage="sqlite:///lbo.db")
        >>> study = stream.study("1985-88", direction="maximize", seed=0)
        >>> study.optimize(objective, n_trials=50)
    """

    def __init__(self, name: str, storage: str | BaseStorage = DEFAULT_STORAGE) -> None:
        _check_name("stream", name)
        if "/" in name:
            raise StreamError(f"A stream's name has no slash, but got {name!r}. Use another character.")
        self.name = name
        self._storage = open_storage(storage)
        self._pinned: dict[tuple[int, str], Memory | None] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_pinned": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def storage(self) -> BaseStorage:
        """The Optuna storage that holds the stream."""
        return self._storage

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, oldest first."""
        return [task.task for task in self._list()]

    def study(
        self,
        task: str,
        *,
        direction: str | StudyDirection | None = None,
        seed: int | None = None,
        model: Model | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
    ) -> Study:
        """The task's study: created as the newest of the stream, or resumed.

        Args:
            task: its name within the stream.
            direction: "minimize" or "maximize", the same for the whole stream; None for what the stream has.
            seed: of the sampler.
            model: one of `lbo.models`; None for the default.
            pruner: as in `optuna.create_study`.
        """
        _check_name("task", task)
        if task == SHELF:
            raise StreamError(f"A task cannot be called {SHELF!r}: that is where the memory lives. Use another name.")
        if len(self.name) + len(task) + 1 > _MAX_NAME:
            raise StreamError(
                f"Stream and task name together have at most {_MAX_NAME - 1} characters, "
                f"but these have {len(self.name) + len(task)}. Use shorter names."
            )
        wanted = self._direction(task, direction)
        study_name = self._existing_name(task) or f"{self.name}/{task}"
        sampler = LBOSampler(stream=self, model=model, seed=seed)
        study = optuna.create_study(
            study_name=study_name, storage=self._storage, sampler=sampler, pruner=pruner,
            direction=wanted, load_if_exists=True,
        )  # fmt: skip
        self._tag(study._study_id, task)
        return study

    def memory(self, model: Model | None = None) -> Memory:
        """What the stream knows after all its tasks so far, the newest one included.

        Args:
            model: whose memory; None for that of the stored memory, or the default model's.
        """
        shelved = self._read_shelf()
        if model is None:
            stored = shelved.memory if shelved else None
            model = from_settings(stored.model) if stored else default_model()
        memory, _ = self._fold(self._list(), model, shelved)
        if memory is None:
            raise StreamError(
                f"Stream {self.name!r} has no task with two finished trials yet, so there is nothing to remember. "
                f"Run stream.study(...).optimize(...) first."
            )
        return memory

    def forget(self, task: str) -> None:
        """Delete a task's study and everything that memory has of it."""
        found = next((t for t in self._list() if t.task == task), None)
        if found is None:
            known = ", ".join(repr(t) for t in self.tasks) or "none"
            raise StreamError(f"Stream {self.name!r} has no task {task!r}; its tasks are: {known}.")
        shelved = self._read_shelf()
        self._clear_shelf()  # first, so that a crash in between cannot leave a memory of a forgotten task
        optuna.delete_study(study_name=found.study_name, storage=self._storage)
        self._pinned.clear()
        if shelved is not None and shelved.memory is not None:
            self.rebuild(from_settings(shelved.memory.model))

    def rebuild(self, model: Model | None = None) -> None:
        """Derive the stored memory from the trials again."""
        if model is None:
            shelved = self._read_shelf()
            stored = shelved.memory if shelved else None
            model = from_settings(stored.model) if stored else default_model()
        self._clear_shelf()
        self._pinned.clear()
        tasks = self._list()
        if tasks:
            memory, covers = self._fold(tasks[:-1], model, None)
            self._write_shelf(_Shelved(memory, covers, tasks[-1].study_id))

    def adopt(self, *study_names: str, storage: str | BaseStorage | None = None) -> None:
        """Take existing Optuna studies into the stream, in the order given, after the tasks it has.

        Args:
            study_names: each becomes a task of the same name.
            storage: where they are, if that is not the stream's storage: they are copied then.
        """
        source = self._storage if storage is None else open_storage(storage)
        studies = [self._check_adoptable(name, source) for name in study_names]
        newest = max((s._study_id for s in self._storage.get_all_studies()), default=0)
        for i, study in enumerate(studies):
            if storage is not None:
                copy = f"{self.name}/{study.study_name}"
                optuna.copy_study(
                    from_study_name=study.study_name, from_storage=source, to_storage=self._storage, to_study_name=copy
                )
                study_id = self._storage.get_study_id_from_name(copy)
            else:
                study_id = study._study_id
            self._storage.set_study_system_attr(study_id, "lbo:position", [newest, i + 1])
            self._tag(study_id, study.study_name)

    def memory_for(self, study: Study) -> Memory | None:
        """The memory of all tasks before this study's, which its sampler asks with. Pinned once a process has it."""
        model: Model = study.sampler.model if isinstance(study.sampler, LBOSampler) else default_model()
        key = (study._study_id, json.dumps(dict(settings(model)), sort_keys=True))
        with self._lock:
            if key not in self._pinned:
                self._pinned[key] = self._prepare(study._study_id, model)
            return self._pinned[key]

    # Deriving

    def _prepare(self, study_id: int, model: Model) -> Memory | None:
        shelved = self._read_shelf()
        if shelved is not None and shelved.made_for == study_id and _belongs(shelved.memory, model):
            return shelved.memory
        tasks = self._list()
        ids = [t.study_id for t in tasks]
        if study_id not in ids:
            return None  # created by hand, without a tag: a task of no stream
        before = tasks[: ids.index(study_id)]
        memory, covers = self._fold(before, model, shelved)
        if study_id == ids[-1]:
            self._write_shelf(_Shelved(memory, covers, study_id))
        return memory

    def _fold(
        self, tasks: Sequence[_TaskStudy], model: Model, shelved: _Shelved | None
    ) -> tuple[Memory | None, tuple[tuple[int, int], ...]]:
        """Memory after these tasks, starting from the stored one if it is made of the first of them."""
        now = tuple((t.study_id, self._storage.get_n_trials(t.study_id, _FINISHED)) for t in tasks)
        memory, done = None, 0
        if shelved is not None and _belongs(shelved.memory, model) and shelved.covers == now[: len(shelved.covers)]:
            memory, done = shelved.memory, len(shelved.covers)
        for task in tasks[done:]:
            trials = self._storage.get_all_trials(task.study_id, deepcopy=False)
            direction = self._storage.get_study_directions(task.study_id)[0]
            memory = fold(memory, self.name, task.task, trials, direction, model)
        return memory, now

    # Storing

    def _shelf_name(self) -> str:
        return f"{self.name}/{SHELF}"

    def _shelf_id(self) -> int | None:
        try:
            return self._storage.get_study_id_from_name(self._shelf_name())
        except KeyError:
            return None

    def _read_shelf(self) -> _Shelved | None:
        """The stored memory; None if there is none, or if it is damaged, which is logged and mended by deriving it."""
        shelf = self._shelf_id()
        if shelf is None:
            return None
        attributes = self._storage.get_study_system_attrs(shelf)
        marker = attributes.get("lbo:memory")
        if marker is None:
            return None
        try:
            return _unpack(marker, attributes)
        except MemoryDamaged as damage:
            logger.warning("Stream %r: %s. It is derived again from the trials.", self.name, damage)
            return None

    def _write_shelf(self, shelved: _Shelved) -> None:
        shelf = self._shelf_id()
        assert shelf is not None, "a stream with tasks has a shelf"
        current = self._storage.get_study_system_attrs(shelf).get("lbo:memory")
        slot = "b" if isinstance(current, dict) and current.get("slot") == "a" else "a"
        marker, chunks = _pack(slot, shelved)
        for key, chunk in chunks.items():
            self._storage.set_study_system_attr(shelf, key, chunk)
        self._storage.set_study_system_attr(shelf, "lbo:memory", marker)

    def _clear_shelf(self) -> None:
        shelf = self._shelf_id()
        if shelf is None:
            return
        attributes = self._storage.get_study_system_attrs(shelf)
        self._storage.set_study_system_attr(shelf, "lbo:memory", None)
        for key in attributes:
            if key.startswith("lbo:memory:"):
                self._storage.set_study_system_attr(shelf, key, "")

    # Tasks

    def _list(self) -> list[_TaskStudy]:
        tasks = [
            _TaskStudy(
                s._study_id, s.study_name, s.system_attrs["lbo:task"],
                tuple(s.system_attrs.get("lbo:position", (s._study_id, 0))),
            )
            for s in self._storage.get_all_studies()
            if s.system_attrs.get("lbo:stream") == self.name and "lbo:task" in s.system_attrs
        ]  # fmt: skip
        return sorted(tasks, key=lambda t: t.position)

    def _existing_name(self, task: str) -> str | None:
        """The study that is this task; an adopted one keeps the name it came with."""
        return next((t.study_name for t in self._list() if t.task == task), None)

    def _tag(self, study_id: int, task: str) -> None:
        attributes = self._storage.get_study_system_attrs(study_id)
        for key, value in (("lbo:task", task), ("lbo:stream", self.name)):
            if attributes.get(key) != value:
                self._storage.set_study_system_attr(study_id, key, value)

    def _direction(self, task: str, direction: str | StudyDirection | None) -> StudyDirection:
        """The stream's direction, which the first task decides by creating the shelf."""
        wanted = None if direction is None else _as_direction(direction)
        shelf = self._shelf_id()
        if shelf is None:
            study = optuna.create_study(
                study_name=self._shelf_name(), storage=self._storage,
                direction=wanted or StudyDirection.MINIMIZE, load_if_exists=True,
            )  # fmt: skip
            shelf = study._study_id
        has = self._storage.get_study_directions(shelf)[0]
        if wanted is not None and wanted != has:
            raise StreamError(
                f"direction of stream {self.name!r} is {has.name.lower()!r}, but study {task!r} asked for "
                f"{wanted.name.lower()!r}. Use another stream name, or pass direction={has.name.lower()!r}."
            )
        return has

    def _check_adoptable(self, name: str, source: BaseStorage) -> Study:
        try:
            study = optuna.load_study(study_name=name, storage=source)
        except KeyError:
            raise StreamError(f"There is no study {name!r} in that storage to adopt.") from None
        if len(study.directions) != 1:
            raise StreamError(f"A task has one objective, but study {name!r} has {len(study.directions)}.")
        self._direction(name, study.direction)
        if name in self.tasks:
            raise StreamError(f"Stream {self.name!r} has a task {name!r} already. Rename one, or use another stream.")
        return study


def open_storage(storage: str | BaseStorage) -> BaseStorage:
    """An Optuna storage; from a URL with heartbeats, so that trials of killed processes are found and run again."""
    if not isinstance(storage, str):
        return optuna.storages.get_storage(storage)
    options: dict[str, Any] = {}
    if storage.startswith("sqlite"):
        # Workers on one file wait for each other's writes; Python's own five seconds are too few for eight of them.
        options = {"engine_kwargs": {"connect_args": {"timeout": 120}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        rdb = RDBStorage(
            storage,
            heartbeat_interval=60,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=1),
            **options,
        )
    return optuna.storages.get_storage(rdb)


def streams(storage: str | BaseStorage = DEFAULT_STORAGE) -> list[str]:
    """Names of the streams in a storage."""
    found = {s.system_attrs.get("lbo:stream") for s in open_storage(storage).get_all_studies()}
    return sorted(name for name in found if name is not None)


def _belongs(memory: Memory | None, model: Model) -> bool:
    return memory is None or dict(memory.model) == json.loads(json.dumps(dict(settings(model))))


def _pack(slot: str, shelved: _Shelved) -> tuple[dict[str, Any], dict[str, str]]:
    header = json.dumps({"covers": shelved.covers, "made_for": shelved.made_for}, separators=(",", ":"))
    text = header + "\n" + (shelved.memory.to_bytes().decode() if shelved.memory else "")
    parts = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    marker = {"slot": slot, "chunks": len(parts), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return marker, {f"lbo:memory:{slot}:{i}": part for i, part in enumerate(parts)}


def _unpack(marker: Any, attributes: dict[str, Any]) -> _Shelved:
    try:
        keys = [f"lbo:memory:{marker['slot']}:{i}" for i in range(int(marker["chunks"]))]
        text = "".join(attributes[key] for key in keys)
        sha256 = marker["sha256"]
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryDamaged(f"the stored memory is incomplete ({type(error).__name__}: {error})") from error
    if hashlib.sha256(text.encode()).hexdigest() != sha256:
        raise MemoryDamaged("the stored memory does not have the checksum it was written with")
    header, _, body = text.partition("\n")
    try:
        fields = json.loads(header)
        covers = tuple((int(study), int(n)) for study, n in fields["covers"])
        made_for = None if fields["made_for"] is None else int(fields["made_for"])
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryDamaged(f"the stored memory has a header that does not read ({error})") from error
    return _Shelved(Memory.from_bytes(body.encode()) if body else None, covers, made_for)


def _as_direction(direction: str | StudyDirection) -> StudyDirection:
    if isinstance(direction, StudyDirection):
        return direction
    if direction not in ("minimize", "maximize"):
        raise StreamError(f"direction is 'minimize' or 'maximize', but got {direction!r}.")
    return StudyDirection[direction.upper()]


def _check_name(kind: str, name: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise StreamError(f"A {kind} needs a name that is not empty, but got {name!r}.")
    if any(not c.isprintable() for c in name):
        raise StreamError(f"A {kind}'s name has printable characters only, but got {name!r}. Take out line breaks.")
    if len(name) >= _MAX_NAME:
        raise StreamError(f"A {kind}'s name has fewer than {_MAX_NAME} characters, but this has {len(name)}.")
