"""Stream: the tasks of one name in one Optuna storage, and the memory that is derived from their trials.

A task is a study that is tagged with its stream. Trials are the truth; memory is a function of them, kept on the
stream's shelf for the task that is being run, and derived again wherever it is missing, damaged or out of date.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection

from lbo.consolidate import belongs, fold
from lbo.errors import MemoryDamaged, SpaceError, StreamError
from lbo.memory import Memory
from lbo.models import Lifelong, default_model, from_settings
from lbo.models.base import Model
from lbo.sampler import LBOSampler
from lbo.shelf import PLACE, Folded, Shelf, Shelved
from lbo.storage import open_storage

if TYPE_CHECKING:
    from lbo.advice import Advice

DEFAULT_STORAGE = "sqlite:///lbo.db"
_TAG = "lbo:task"  # system attribute of a task's study: stream, task and position
_RESUMED = "lbo:resumed"  # the same, of one that was asked again when it was not the newest any more
LOOK_BACK = 50  # tasks that are looked at for trials gained since they were folded in; see `_unchanged`
_MAX_NAME = 500  # Optuna's study names have at most 512 characters
_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")  # control characters, halves of pairs, separators of lines and paragraphs


@dataclass(frozen=True)
class _Task:
    """A task as the storage lists it."""

    study_id: int
    study_name: str
    name: str
    position: int  # workers that start two tasks at once may give both the same
    resumed: bool


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
        self._shelf = Shelf(name, self._storage)
        self._forget_pinned()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_pinned": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_pinned()

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    @property
    def storage(self) -> BaseStorage:
        """The Optuna storage that holds the stream."""
        return self._storage

    @property
    def direction(self) -> str | None:
        """ "minimize" or "maximize"; None before the first task decides it."""
        direction = self._shelf.direction()
        return None if direction is None else direction.name.lower()

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, oldest first."""
        return [task.name for task in self._list()]

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
        self._check_task_name(task)
        directions = [self._direction(task, direction)]
        study_name, position = self._place(task)
        optuna.create_study(study_name=study_name, storage=self._storage, directions=directions, load_if_exists=True)
        study = _TaskStudy(
            study_name, self._storage, sampler=LBOSampler(stream=self, model=model, seed=seed), pruner=pruner
        )
        if study.directions != directions:
            raise StreamError(
                f"A task has its stream's direction, {_named(directions)}, but there is a study {study_name!r} "
                f"already, with {_named(study.directions)}. Use another task name."
            )
        self._tag(study._study_id, task, position)
        return study

    def memory(self, model: Model | None = None) -> Memory:
        """What the stream knows after all its tasks so far, the newest one included.

        Args:
            model: whose memory; None for that of the stored memory, or the default model's.
        """
        shelved = self._shelf.read()
        model = model or _model_of(shelved) or default_model()
        return self._fold(self._list(), model, shelved).memory or Memory.empty(model)

    def advice(self, task: str, *, threshold: float | None = None) -> Advice:
        """Whether to keep the configuration of the task before, to retune, or to stop.

        Args:
            task: one of the stream's, or a new name for the task that comes next.
            threshold: the smallest gain that counts, in the objective's units; None for a tenth of how far values lie
                apart in this stream.
        """
        from lbo.advice import Known, advise

        self._check_task_name(task)
        tasks, shelved = self._list(), self._shelf.read()
        here = next((i for i, known in enumerate(tasks) if known.name == task), len(tasks))
        stored = _model_of(shelved)
        model = stored if isinstance(stored, Lifelong) else Lifelong()
        memory = self._fold(tasks[:here], model, shelved).memory
        trials = self._storage.get_all_trials(tasks[here].study_id, deepcopy=False) if here < len(tasks) else []
        known = Known(trials, self._shelf.direction() or StudyDirection.MINIMIZE, memory)
        return advise(task, known, threshold=threshold, model=model)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the stream's report, one HTML file that needs no network; returns where."""
        from lbo.report import write

        return write(self, path)

    def forget(self, task: str) -> None:
        """Delete a task's study and everything that memory has of it."""
        found = self._find(task)
        if found is None:
            known = ", ".join(repr(name) for name in self.tasks) or "none"
            raise StreamError(f"Stream {self.name!r} has no task {task!r}; its tasks are: {known}.")
        model = _model_of(self._shelf.read())
        # Before, so that a crash in between leaves no memory of it; after, for a worker that wrote one in between.
        self._shelf.clear(mentioning=found.study_id)
        optuna.delete_study(study_name=found.study_name, storage=self._storage)
        self._shelf.clear(mentioning=found.study_id)
        self._forget_pinned()
        if not self._list():
            self._shelf.remove()
        elif model is not None:
            self._restore(model)

    def rebuild(self, model: Model | None = None) -> None:
        """Derive the stored memory from the trials again.

        Args:
            model: as in `memory`.
        """
        model = model or _model_of(self._shelf.read()) or default_model()
        self._shelf.clear()
        self._forget_pinned()
        self._restore(model)

    def adopt(self, *study_names: str, storage: str | BaseStorage | None = None) -> None:
        """Take existing Optuna studies into the stream, in the order given, after the tasks it has.

        Args:
            study_names: each becomes a task of the same name.
            storage: where they are, if that is not the stream's storage: they are copied then.
        """
        source = self._storage if storage is None else open_storage(storage)
        tasks = self._list()
        names = [task.name for task in tasks]
        studies = [self._load(study_name, source) for study_name in study_names]
        for study in studies:
            self._check_adoptable(study, studies[0].direction, names, source)
            names.append(self._adopted_name(study))
        for position, study in enumerate(studies, start=_next_position(tasks)):
            task = self._adopted_name(study)
            self._direction(task, study.direction)
            copy = study if source is self._storage else self._copy(study, f"{self.name}/{task}")
            self._tag(copy._study_id, task, position)

    def memory_for(self, study: Study, model: Model | None = None) -> Memory | None:
        """The memory of all tasks before a study's, which its sampler asks with; the same for as long as it runs.

        A study that is no task of this stream has all its tasks before it, and leaves no trace here.
        """
        if model is None:
            model = study.sampler.model if isinstance(study.sampler, LBOSampler) else default_model()
        with self._lock:
            pinned = self._pinned.get(study)
            if pinned is None or pinned[0] != model:
                pinned = self._pinned[study] = (model, self._prepare(study, model))
            return pinned[1]

    def _forget_pinned(self) -> None:
        self._lock = threading.Lock()
        self._pinned: WeakKeyDictionary[Study, tuple[Model, Memory | None]] = WeakKeyDictionary()

    # Deriving

    def _prepare(self, study: Study, model: Model) -> Memory | None:
        here = self._has(study)
        if here and (ready := self._made_for(study, model)):
            return ready.memory
        shelved = self._shelf.read()
        tasks = self._list()
        ids = [task.study_id for task in tasks]
        if not here or study._study_id not in ids:
            return self._fold(tasks, model, shelved).memory
        before = tasks[: ids.index(study._study_id)]
        folded = self._fold(before, model, shelved)
        if study._study_id != ids[-1]:
            self._storage.set_study_system_attr(study._study_id, _RESUMED, True)
            return folded.memory
        return self._publish(replace(folded, made_for=study._study_id), study, model)

    def _publish(self, new: Shelved, study: Study, model: Model) -> Memory | None:
        """Put a memory on the shelf, unless another worker was faster: then theirs is used here too."""
        if ready := self._made_for(study, model):
            return ready.memory
        self._shelf.write(new)
        left = {task.study_id for task in self._list()}
        gone = [task.study_id for task in new.covers if task.study_id not in left]
        if not gone:
            return new.memory
        for study_id in gone:  # forgotten while it was being folded in
            self._shelf.clear(mentioning=study_id)
        return self._prepare(study, model)

    def _made_for(self, study: Study, model: Model) -> Shelved | None:
        made = self._shelf.read(made_for=study._study_id)
        return next((shelved for shelved in made if belongs(shelved.memory, model)), None)

    def _restore(self, model: Model) -> None:
        """Put the memory for the newest task on the shelf."""
        tasks = self._list()
        if tasks:
            folded = self._fold(tasks[:-1], model, self._shelf.read())
            self._shelf.write(replace(folded, made_for=tasks[-1].study_id))

    def _fold(self, tasks: Sequence[_Task], model: Model, shelved: Sequence[Shelved]) -> Shelved:
        """Memory after these tasks, starting from the stored one that has most of them."""
        usable = (s for s in shelved if belongs(s.memory, model) and self._unchanged(s.covers, tasks))
        start = next(usable, Shelved(None))
        memory, covers = start.memory, list(start.covers)
        for task in tasks[len(covers) :]:
            trials = self._storage.get_all_trials(task.study_id, deepcopy=False)
            direction = self._storage.get_study_directions(task.study_id)[0]
            try:
                memory = fold(memory, self.name, task.name, trials, direction, model)
            except SpaceError as error:
                raise StreamError(
                    f"Task {task.name!r} does not fit the tasks before it in stream {self.name!r}. {error} "
                    f"To go on without it: stream.forget({task.name!r})."
                ) from error
            finished = sum(trial.state.is_finished() for trial in trials)
            covers.append(Folded(task.study_id, finished, len(trials) - finished))
        return Shelved(memory, tuple(covers))

    def _unchanged(self, covers: Sequence[Folded], tasks: Sequence[_Task]) -> bool:
        """Whether a memory is made of the first of these tasks as they are now.

        Looking at a thousand tasks would take a second, so those far back count as over unless `study` resumed them.
        """
        if [folded.study_id for folded in covers] != [task.study_id for task in tasks[: len(covers)]]:
            return False
        recent = len(covers) - LOOK_BACK
        looked_at = [f for i, (f, task) in enumerate(zip(covers, tasks, strict=False)) if i >= recent or task.resumed]
        return not any(self._gained(folded) for folded in looked_at)

    def _gained(self, folded: Folded) -> bool:
        """Whether a task has finished trials that it did not have when it was folded in."""
        if folded.unfinished:
            trials = self._storage.get_all_trials(folded.study_id, deepcopy=False)
            return sum(trial.state.is_finished() for trial in trials) != folded.finished
        try:  # numbers run from 0 without gaps
            self._storage.get_trial_id_from_study_id_trial_number(folded.study_id, folded.finished)
        except KeyError:
            return False
        return True

    # Tasks

    def _list(self) -> list[_Task]:
        tasks = [
            _Task(
                study_id=study._study_id,
                study_name=study.study_name,
                name=study.system_attrs[_TAG]["task"],
                position=study.system_attrs[_TAG]["position"],
                resumed=_RESUMED in study.system_attrs,
            )
            for study in self._studies()
            if study.system_attrs.get(_TAG, {}).get("stream") == self.name
        ]
        return sorted(tasks, key=lambda task: (task.position, task.study_id))

    def _studies(self) -> list[optuna.study._frozen.FrozenStudy]:
        try:
            return self._storage.get_all_studies()
        except (ValueError, optuna.exceptions.StorageInternalError):
            self._shelf.read()  # which mends it, if it is this shelf that cannot be read
            return self._storage.get_all_studies()

    def _find(self, task: str) -> _Task | None:
        return next((found for found in self._list() if found.name == task), None)

    def _has(self, study: Study) -> bool:
        """Whether a study is in this storage."""
        try:
            return self._storage.get_study_id_from_name(study.study_name) == study._study_id
        except KeyError:
            return False

    def _place(self, task: str) -> tuple[str, int]:
        """The name of the study that is this task, or will be, and the position it gets if it has none."""
        usual = f"{self.name}/{task}"
        try:
            study_id = self._storage.get_study_id_from_name(usual)
            if _TAG in self._storage.get_study_system_attrs(study_id):
                return usual, 0
        except KeyError:
            pass
        tasks = self._list()
        adopted = next((found for found in tasks if found.name == task), None)  # it keeps the name it came with
        return adopted.study_name if adopted else usual, _next_position(tasks)

    def _tag(self, study_id: int, task: str, position: int) -> None:
        """Make a study a task of the stream, unless it is one."""
        tag = self._storage.get_study_system_attrs(study_id).get(_TAG)
        if tag is None:
            # A database may give a deleted study's number to a new one, of which what is shelved knows nothing.
            self._shelf.clear(mentioning=study_id)
            tag = {"stream": self.name, "task": task, "position": position}
            self._storage.set_study_system_attr(study_id, _TAG, tag)
        if tag["stream"] != self.name:
            raise StreamError(f"A study is a task of one stream, but this one belongs to {tag['stream']!r} already.")

    def _check_task_name(self, task: str) -> None:
        _check_name("task", task)
        if task == PLACE:
            raise StreamError(f"A task cannot be called {PLACE!r}: that is where the memory lives. Use another name.")
        if len(self.name) + len(task) >= _MAX_NAME:
            raise StreamError(
                f"Names of stream and task together have fewer than {_MAX_NAME} characters, "
                f"but these have {len(self.name) + len(task)}. Use shorter names."
            )

    def _direction(self, task: str, direction: str | StudyDirection | None) -> StudyDirection:
        wanted = None if direction is None else _as_direction(direction)
        has = self._shelf.direction() or self._shelf.put_up(
            self._oldest_direction() or wanted or StudyDirection.MINIMIZE
        )
        if wanted is not None and wanted != has:
            raise StreamError(
                f"direction of stream {self.name!r} is {_named([has])}, but study {task!r} asked for "
                f"{_named([wanted])}. Use another stream name, or pass direction={_named([has])}."
            )
        return has

    def _oldest_direction(self) -> StudyDirection | None:
        """What a stream had whose shelf somebody deleted."""
        return next((self._storage.get_study_directions(task.study_id)[0] for task in self._list()), None)

    # Adopting

    def _load(self, study_name: str, source: BaseStorage) -> Study:
        try:
            study = optuna.load_study(study_name=study_name, storage=source)
        except KeyError:
            raise StreamError(f"There is no study {study_name!r} in that storage to adopt.") from None
        if len(study.directions) != 1:
            raise StreamError(
                f"A task has one objective, but {study_name!r} has {len(study.directions)}. It cannot be adopted."
            )
        return study

    def _adopted_name(self, study: Study) -> str:
        """What a study is called as a task: what it was called as one elsewhere, or its own name."""
        tag = study._storage.get_study_system_attrs(study._study_id).get(_TAG)
        return str(tag["task"]) if tag else study.study_name.removeprefix(f"{self.name}/")

    def _check_adoptable(
        self, study: Study, direction: StudyDirection, taken: Sequence[str], source: BaseStorage
    ) -> None:
        task = self._adopted_name(study)
        if study.study_name.endswith(f"/{PLACE}"):
            raise StreamError(f"{study.study_name!r} is a stream's memory and not a study to adopt.")
        self._check_task_name(task)
        if task in taken:
            raise StreamError(
                f"Stream {self.name!r} has a task {task!r} already. Adopt a study once, or into another stream."
            )
        tag = study._storage.get_study_system_attrs(study._study_id).get(_TAG)
        if tag and source is self._storage:
            raise StreamError(
                f"A study is a task of one stream, but {study.study_name!r} belongs to {tag['stream']!r}."
            )
        if study.direction != direction:
            raise StreamError(
                f"Tasks of a stream have one direction, but {study.study_name!r} has {_named(study.directions)} "
                f"and the first one {_named([direction])}. Adopt them into two streams."
            )

    def _copy(self, study: Study, name: str) -> Study:
        """A study's finished trials in this storage; nobody here is going to finish the others."""
        try:
            copy = optuna.create_study(study_name=name, storage=self._storage, direction=study.direction)
        except optuna.exceptions.DuplicatedStudyError:
            raise StreamError(
                f"There is a study {name!r} in the stream's storage already. If an adoption that was cut short "
                f"has left it there, delete it with optuna.delete_study."
            ) from None
        for key, value in study.user_attrs.items():
            copy.set_user_attr(key, value)
        copy.add_trials([trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()])
        return copy


class _TaskStudy(Study):
    """A study that does not warn, when it is asked outside `optimize`, that heartbeats are sent only inside."""

    def ask(self, fixed_distributions: dict[str, BaseDistribution] | None = None) -> optuna.Trial:
        local = self._thread_local
        was, local.in_optimize_loop = local.in_optimize_loop, True
        try:
            return super().ask(fixed_distributions)
        finally:
            local.in_optimize_loop = was


def streams(storage: str | BaseStorage = DEFAULT_STORAGE) -> list[str]:
    """Names of the streams in a storage."""
    tags = (study.system_attrs.get(_TAG) for study in open_storage(storage).get_all_studies())
    return sorted({tag["stream"] for tag in tags if tag})


def _model_of(shelved: Sequence[Shelved]) -> Model | None:
    """The model of the newest stored memory; None if there is none, or none that this version of lbo has."""
    memory = next((s.memory for s in shelved if s.memory is not None), None)
    try:
        return from_settings(memory.model) if memory else None
    except (MemoryDamaged, TypeError):
        return None


def _next_position(tasks: Sequence[_Task]) -> int:
    return max((task.position for task in tasks), default=0) + 1


def _as_direction(direction: str | StudyDirection) -> StudyDirection:
    if isinstance(direction, StudyDirection):
        return direction
    if direction not in ("minimize", "maximize"):
        raise StreamError(f"direction is 'minimize' or 'maximize', but got {direction!r}.")
    return StudyDirection[direction.upper()]


def _named(directions: Sequence[StudyDirection]) -> str:
    return ", ".join(repr(direction.name.lower()) for direction in directions)


def _check_name(kind: str, name: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise StreamError(f"A {kind} needs a name that is not empty, but got {name!r}.")
    if len(name) >= _MAX_NAME:
        raise StreamError(
            f"A {kind}'s name has fewer than {_MAX_NAME} characters, but this has {len(name)}: {name[:20]!r}..."
        )
    if any(unicodedata.category(c) in _UNPRINTABLE for c in name):
        raise StreamError(f"A {kind}'s name has no line breaks or control characters, but got {name!r}.")
