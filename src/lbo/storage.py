"""Optuna storages from URLs, set up for streams: heartbeats, patience with other workers and with restarts."""

from __future__ import annotations

import os
import random
import time
import warnings
import weakref
from functools import partial
from typing import Any

import optuna
from optuna.storages import BaseStorage, RDBStorage, RetryHeartbeatStaleTrialCallback

from lbo.errors import LboError, StreamError

HEARTBEAT = 60  # seconds; a trial whose process has been silent for twice as long is failed and run once more
LOCK_TIMEOUT = 120  # seconds; Python's own five are too few for eight workers on one SQLite file
RESTART_TIMEOUT = 60  # seconds that a running study waits for a database server that has gone away
_OPENING_ATTEMPTS = 10


class DatabaseGone(LboError, optuna.exceptions.StorageInternalError):
    """The database server stopped in the middle of a statement."""


def open_storage(storage: str | BaseStorage) -> BaseStorage:
    """An Optuna storage; from a URL with heartbeats, so that trials of killed processes are found and run again."""
    if isinstance(storage, BaseStorage):
        return optuna.storages.get_storage(storage)
    if not isinstance(storage, str):
        raise StreamError(f"A storage is an Optuna storage or a URL such as 'sqlite:///lbo.db', but got {storage!r}.")
    return optuna.storages.get_storage(_open_url(storage))


def _open_url(url: str) -> RDBStorage:
    from sqlalchemy.exc import ArgumentError, DBAPIError

    for attempt in range(_OPENING_ATTEMPTS):
        try:
            return _Storage(url)
        except (ArgumentError, ImportError) as error:
            raise StreamError(
                f"A storage's URL is one that SQLAlchemy can open, such as 'sqlite:///lbo.db' or "
                f"'postgresql+psycopg://user@host/database', but got {_without_password(url)!r} "
                f"({error.__cause__ or error})."
            ) from error
        except DBAPIError as error:
            # Workers that open an empty database at once try to create the same tables, and all but one fail.
            if attempt == _OPENING_ATTEMPTS - 1:
                raise StreamError(
                    f"The storage {_without_password(url)!r} does not open: {str(error.orig).strip()}. "
                    f"Check that the URL is right and that the database is running."
                ) from error
            time.sleep(random.uniform(0.05, 0.25))
    raise AssertionError("the last attempt returns or raises")


def _without_password(url: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


class _Storage(RDBStorage):
    """Optuna's storage; once open, its connections wait while the database server restarts."""

    def __init__(self, url: str) -> None:
        sqlite = url.startswith("sqlite")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            super().__init__(
                url,
                engine_kwargs={"connect_args": {"timeout": LOCK_TIMEOUT}} if sqlite else {"pool_pre_ping": True},
                heartbeat_interval=HEARTBEAT,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=1),
            )
        self._set_up_engine()

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self._set_up_engine()

    def _set_up_engine(self) -> None:
        from sqlalchemy import event

        event.listen(self.engine, "do_connect", _connect_patiently)
        event.listen(self.engine, "handle_error", _explain_disconnection)
        if self.engine.name == "sqlite":
            event.listen(self.engine, "connect", _read_damaged_text)
            self.engine.dispose()  # of connections that were opened before it listened
        weakref.finalize(self, _close, self.engine, os.getpid())


def _explain_disconnection(context: Any) -> None:
    """Optuna would speak of invalid data; whether a statement that was cut off has been carried out nobody can tell."""
    if context.is_disconnect and not context.is_pre_ping:
        raise DatabaseGone(
            f"A database stays up while a study writes to it, but this one went away in the middle of a statement "
            f"({str(context.original_exception).splitlines()[0]}). Run the same again once it is back: what was "
            f"finished is kept, and the trial that was running is run once more."
        ) from context.original_exception


def _read_damaged_text(connection: Any, record: Any) -> None:
    """Let bytes that are not UTF-8 any more be read: a row that cannot be read could not be deleted either."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")


def _close(engine: Any, process: int) -> None:
    """Close connections to a server; a forked process leaves its parent's alone."""
    if os.getpid() == process:
        engine.dispose()


def _connect_patiently(dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    give_up = time.monotonic() + RESTART_TIMEOUT
    while True:
        try:
            return dialect.connect(*arguments, **options)
        except dialect.loaded_dbapi.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(random.uniform(0.2, 0.6))
