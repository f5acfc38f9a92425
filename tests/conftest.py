"""What tests of several modules share: a directory in memory, and a real PostgreSQL, started once per session."""

import itertools
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def ram():
    """A directory where SQLite need not wait for a disk, if the machine has one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def postgres():
    from postgres import Postgres

    with tempfile.TemporaryDirectory(prefix="lbo-pg-") as directory, Postgres(directory) as server:
        yield server


@pytest.fixture(scope="session")
def new_database(postgres):
    """Makes an empty PostgreSQL database and returns its URL."""
    numbers = itertools.count()
    return lambda: postgres.create_database(f"lbo{next(numbers)}")
