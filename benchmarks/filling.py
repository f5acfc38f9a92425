"""Puts whole tasks into a stream's storage, as many rows at a time as the database takes.

Through Optuna a thousand tasks of fifty trials take hours on some databases; these are the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, func, insert, select

import lbo
from lbo.shelf import Folded


def add_tasks(stream: lbo.Stream, tasks: Mapping[int, Sequence[FrozenTrial]]) -> list[Folded]:
    """Tasks by position with all their trials; returns what a memory says of the tasks that it covers."""
    ids = {position: _create(stream, position) for position in tasks}
    with stream.storage._backend.engine.begin() as connection:
        _insert(connection, {ids[position]: trials for position, trials in tasks.items()})
    return [Folded(ids[position], len(trials), 0) for position, trials in tasks.items()]


def _create(stream: lbo.Stream, position: int) -> int:
    """What `Stream.study` writes of a new task, without looking at those before it."""
    task = f"t{position}"
    study_id = stream.storage.create_new_study([StudyDirection.MINIMIZE], f"{stream.name}/{task}")
    tag = {"stream": stream.name, "task": task, "position": position}
    stream.storage.set_study_system_attr(study_id, "lbo:task", tag)
    return study_id


def _insert(connection: Connection, studies: Mapping[int, Sequence[FrozenTrial]]) -> None:
    last = connection.execute(select(func.max(models.TrialModel.trial_id))).scalar() or 0
    numbered = enumerate(((study, trial) for study, trials in studies.items() for trial in trials), start=last + 1)
    rows = [(trial_id, study, trial) for trial_id, (study, trial) in numbered]
    for model, of_model in (
        (models.TrialModel, [_trial_row(*row) for row in rows]),
        (models.TrialParamModel, [param for trial_id, _, trial in rows for param in _param_rows(trial_id, trial)]),
        (models.TrialValueModel, [_value_row(trial_id, trial) for trial_id, _, trial in rows]),
    ):
        connection.execute(insert(model.__table__), of_model)
    if connection.dialect.name == "postgresql":  # which counts on its own
        connection.exec_driver_sql(f"select setval('trials_trial_id_seq', {rows[-1][0]})")


def _trial_row(trial_id: int, study_id: int, trial: FrozenTrial) -> dict[str, Any]:
    now = datetime.now()
    return {
        "trial_id": trial_id, "number": trial.number, "study_id": study_id, "state": TrialState.COMPLETE,
        "datetime_start": now, "datetime_complete": now + timedelta(seconds=1),
    }  # fmt: skip


def _param_rows(trial_id: int, trial: FrozenTrial) -> list[dict[str, Any]]:
    return [
        {"trial_id": trial_id, "param_name": name, "distribution_json": distribution_to_json(distribution),
         "param_value": distribution.to_internal_repr(trial.params[name])}
        for name, distribution in trial.distributions.items()
    ]  # fmt: skip


def _value_row(trial_id: int, trial: FrozenTrial) -> dict[str, Any]:
    finite = models.TrialValueModel.TrialValueType.FINITE
    return {"trial_id": trial_id, "objective": 0, "value": trial.value, "value_type": finite}
