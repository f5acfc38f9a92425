"""Kills, crowds, restarts and damage, a few of each; `python tests/soak.py` runs as many as it takes to be sure."""

import optuna
import pytest

import faults


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_a_killed_stream_loses_nothing_and_goes_on(ram):
    seen = [faults.kill_and_resume(ram, seed) for seed in range(4)]
    assert sum(run["run again"] for run in seen) > 0  # or no trial died


def test_eight_workers_share_a_sqlite_file(ram):
    faults.crowd(f"sqlite:///{ram}/lbo.db")


def test_eight_workers_share_a_postgresql_database(new_database):
    faults.crowd(new_database())


def test_postgresql_restarts_under_a_running_study(postgres, new_database, ram):
    faults.restart(postgres, new_database(), ram, seed=0)


def test_postgresql_restarts_unnoticed_while_an_objective_is_evaluated(postgres, new_database, ram):
    assert faults.restart_while_idle(postgres, new_database(), ram)["outcome"] == "went on"


def test_damaged_memories_are_reported_and_derived_again(ram):
    outcomes = faults.fuzz(ram, times=200, seed=0)
    assert outcomes["reported"] > 100
