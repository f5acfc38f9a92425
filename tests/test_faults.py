"""Kills, crowds, restarts and damage, a few of each; `python tests/soak.py` runs as many as it takes to be sure."""

import optuna
import pytest

import faults


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_stream_loses_nothing_and_goes_on(ram, seed):
    faults.kill_and_resume(ram, seed)


def test_eight_workers_share_a_sqlite_file(ram):
    faults.crowd(f"sqlite:///{ram}/lbo.db")


def test_eight_workers_share_a_postgresql_database(new_database):
    faults.crowd(new_database())


def test_postgresql_restarts_under_a_running_study(postgres, new_database, ram):
    faults.restart(postgres, new_database(), ram, seed=0)


def test_damaged_memories_are_reported_and_derived_again(ram):
    outcomes = faults.fuzz(ram, times=200, seed=0)
    assert outcomes["reported"] > 100
