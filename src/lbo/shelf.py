"""The shelf: where a stream's memory lies in its storage.

It is one study more, without trials, beside the tasks: its direction is the stream's, and its system attributes hold
the two newest memories, in slots "a" and "b".

    lbo:memory:SLOT:i   chunk i of the slot's text
    lbo:memory:SLOT     the slot's marker, written last: how many chunks, and their checksum

A new memory goes into the slot of the older one, so whoever reads meanwhile, or after a crash, still finds the newer
one whole. There is no lock: a memory is a function of the trials, and two workers write the same. What does not have
the checksum that its marker says is reported and not used, and the memory is derived from the trials again.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage
from optuna.study import StudyDirection

from lbo.errors import MemoryDamaged
from lbo.memory import FORMAT, Memory

PLACE = ":memory:"  # the shelf's name in the stream, where tasks have theirs
SLOTS = ("a", "b")
CHUNK = 32_000  # characters; as a JSON string at most twice as long, and MySQL's TEXT holds 65,535 bytes

logger = logging.getLogger(__name__)


class Folded(NamedTuple):
    """A task in a memory: its study and how many of its trials were finished, and how many not, when it was read."""

    study_id: int
    finished: int
    unfinished: int


@dataclass(frozen=True)
class Shelved:
    """A memory (None while there is nothing to remember), the tasks it is made of, and the task it was made for."""

    memory: Memory | None
    covers: tuple[Folded, ...] = ()
    made_for: int | None = None


class _Slot(NamedTuple):
    """The same, its memory not read yet."""

    covers: tuple[Folded, ...]
    made_for: int | None
    body: str

    def mentions(self, study_id: int) -> bool:
        return study_id == self.made_for or any(study_id == task.study_id for task in self.covers)


class Shelf:
    """One stream's shelf in one storage."""

    def __init__(self, stream: str, storage: BaseStorage) -> None:
        self._stream = stream
        self._name = f"{stream}/{PLACE}"
        self._storage = storage

    def direction(self) -> StudyDirection | None:
        """The stream's direction; None before there is a shelf."""
        study_id = self._id()
        return None if study_id is None else self._storage.get_study_directions(study_id)[0]

    def put_up(self, direction: StudyDirection) -> StudyDirection:
        """Put up the shelf of a new stream; the direction is another worker's if that was faster."""
        study = optuna.create_study(
            study_name=self._name, storage=self._storage, direction=direction, load_if_exists=True
        )
        return study.direction

    def read(self, made_for: int | None = None) -> list[Shelved]:
        """What is on the shelf and whole, or what of it was made for a task; what covers most tasks first."""
        opened = self._open(self._attributes()).values()
        wanted = [slot for slot in opened if made_for is None or slot.made_for == made_for]
        readable = []
        for slot in sorted(wanted, key=lambda slot: len(slot.covers), reverse=True):
            with self._reporting():
                memory = Memory.from_bytes(slot.body.encode()) if slot.body else None
                readable.append(Shelved(memory, slot.covers, slot.made_for))
        return readable

    def write(self, shelved: Shelved) -> None:
        """Put a memory in the place of the older of two."""
        study_id = self._id()
        if study_id is None:
            return  # the stream's last task was forgotten meanwhile
        attributes = self._attributes()
        opened = self._open(attributes)
        oldest = min(SLOTS, key=lambda slot: len(opened[slot].covers) if slot in opened else -1)
        marker, chunks = _pack(shelved)
        self._blank(study_id, oldest, attributes, but=len(chunks))
        for i, chunk in enumerate(chunks):
            self._storage.set_study_system_attr(study_id, f"{_key(oldest)}:{i}", chunk)
        self._storage.set_study_system_attr(study_id, _key(oldest), marker)

    def clear(self, mentioning: int | None = None) -> None:
        """Blank every slot, or those that mention a study and those that cannot be read."""
        study_id = self._id()
        if study_id is None:
            return
        attributes = self._attributes()
        opened = self._open(attributes)
        for slot in SLOTS:
            keep = mentioning is not None and slot in opened and not opened[slot].mentions(mentioning)
            if not keep:
                self._blank(study_id, slot, attributes)

    def remove(self) -> None:
        """Take the shelf down, and with it the stream's direction."""
        study_id = self._id()
        if study_id is not None:
            self._storage.delete_study(study_id)

    def _id(self) -> int | None:
        try:
            return self._storage.get_study_id_from_name(self._name)
        except KeyError:
            return None

    def _attributes(self) -> dict[str, Any]:
        study_id = self._id()
        if study_id is None:
            return {}
        try:
            return self._storage.get_study_system_attrs(study_id)
        except (ValueError, StorageInternalError):
            direction = self._storage.get_study_directions(study_id)[0]  # fails too if the storage as a whole does
        logger.warning("Stream %r: the stored memory is not text any more. It is derived again from the trials.",
                       self._stream)  # fmt: skip
        self._storage.delete_study(study_id)
        self.put_up(direction)
        return {}

    def _open(self, attributes: dict[str, Any]) -> dict[str, _Slot]:
        """The slots that are whole."""
        opened = {}
        for slot in SLOTS:
            if attributes.get(_key(slot)) is not None:
                with self._reporting():
                    opened[slot] = _open(slot, attributes)
        return opened

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except MemoryDamaged as damage:
            logger.warning("Stream %r: %s. It is derived again from the trials.", self._stream, damage)

    def _blank(self, study_id: int, slot: str, attributes: dict[str, Any], but: int = 0) -> None:
        """Empty a slot, but for the first chunks, which are about to be written.

        The marker goes first, so that nobody reads what is half old and half new.
        """
        refilled = {f"{_key(slot)}:{i}" for i in range(but)}
        if attributes.get(_key(slot)) is not None:
            self._storage.set_study_system_attr(study_id, _key(slot), None)
        for key, value in attributes.items():
            if key.startswith(f"{_key(slot)}:") and value and key not in refilled:
                self._storage.set_study_system_attr(study_id, key, "")


def _key(slot: str) -> str:
    return f"lbo:memory:{slot}"


def _pack(shelved: Shelved) -> tuple[dict[str, Any], list[str]]:
    header = json.dumps({"format": FORMAT, "covers": shelved.covers, "made_for": shelved.made_for})
    text = header + "\n" + (shelved.memory.to_bytes().decode() if shelved.memory else "")
    chunks = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    return {"chunks": len(chunks), "sha256": _checksum(text)}, chunks


def _open(slot: str, attributes: dict[str, Any]) -> _Slot:
    marker = attributes[_key(slot)]
    try:
        text = "".join(attributes[f"{_key(slot)}:{i}"] for i in range(marker["chunks"]))
        expected = marker["sha256"]
    except (KeyError, TypeError) as error:
        raise MemoryDamaged(f"the stored memory is incomplete ({type(error).__name__}: {error})") from error
    if _checksum(text) != expected:
        raise MemoryDamaged("the stored memory does not have the checksum it was written with")
    header, _, body = text.partition("\n")
    try:
        fields = json.loads(header)
        if fields["format"] != FORMAT:
            raise MemoryDamaged(f"the stored memory has format {fields['format']!r}, but this is format {FORMAT}")
        return _Slot(tuple(Folded(*task) for task in fields["covers"]), fields["made_for"], body)
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryDamaged(f"the stored memory has a header that does not read ({error})") from error


def _checksum(text: str) -> str:
    # Damage may leave half a surrogate pair, which has no bytes in UTF-8.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
