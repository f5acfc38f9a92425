"""Streams: the same contract on every storage."""

import gc
import hashlib
import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import joblib
import optuna
import pytest
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import lbo
from cheap import Cheap
from lbo.errors import LboError, SpaceError, StreamError
from lbo.models import Paper

MODEL = Cheap()


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(params=["sqlite", "postgresql", "journal", "memory"])
def storage(request, ram):
    """What `lbo.Stream` takes as its storage."""
    match request.param:
        case "sqlite":
            return f"sqlite:///{ram}/lbo.db"
        case "postgresql":
            return request.getfixturevalue("new_database")()
        case "journal":
            return JournalStorage(JournalFileBackend(str(ram / "journal.log")))
        case "memory":
            return InMemoryStorage()


@pytest.fixture
def sqlite(ram):
    return f"sqlite:///{ram}/lbo.db"


def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    c = trial.suggest_categorical("c", ["p", "q"])
    return (x - 0.3) ** 2 + (c == "p")


def run(stream, *tasks, n_trials=3, model=MODEL, objective=objective, **settings):
    """Run tasks and return the last one's study."""
    for task in tasks:
        study = stream.study(task, seed=0, model=model, **settings)
        study.optimize(objective, n_trials=n_trials)
    return study


def stored(stream):
    """What lies on the shelf, newest first."""
    return stream._shelf.read()


# One contract on every storage


def test_a_study_is_created_and_resumed(storage):
    stream = lbo.Stream("heart", storage)
    study = run(stream, "a", direction="maximize")
    assert isinstance(study, optuna.Study)
    assert study.study_name == "heart/a"
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    again = run(stream, "a")
    assert [t.number for t in again.trials] == list(range(6))
    assert stream.tasks == ["a"]


def test_tasks_are_listed_oldest_first(storage):
    stream = lbo.Stream("heart", storage)
    other = lbo.Stream("liver", stream.storage)
    assert stream.tasks == []
    for task in ["z", "a", "m"]:
        stream.study(task, model=MODEL)
        other.study(f"other {task}", model=MODEL)
    assert stream.tasks == ["z", "a", "m"]
    assert lbo.streams(stream.storage) == ["heart", "liver"]


def test_the_first_ask_of_the_next_task_consolidates_the_earlier_ones(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b")
    study = stream.study("c", seed=0, model=MODEL)
    assert [len(s.covers) for s in stored(stream)] == [1, 0]
    study.optimize(objective, n_trials=1)
    newest = stored(stream)[0]
    assert newest.made_for == study._study_id
    assert newest.memory.tasks == ["a", "b"]
    assert [(t.finished, t.unfinished) for t in newest.covers] == [(3, 0), (3, 0)]


def test_memory_is_of_every_task_and_equals_a_rebuilt_one(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b", "c")
    memory = stream.memory(MODEL)
    assert memory.tasks == stream.tasks
    assert memory.sharing.shape == (3, 3)
    on_shelf = stored(stream)[0].memory
    assert on_shelf.tasks == ["a", "b"]
    stream.rebuild(MODEL)
    assert stored(stream)[0].memory == on_shelf
    assert stream.memory(MODEL) == memory


def test_trials_gained_later_are_folded_in_by_the_next_task(storage):
    stream = lbo.Stream("heart", storage)
    first = run(stream, "a")
    run(stream, "b")
    first.optimize(objective, n_trials=2)
    run(stream, "c", n_trials=1)
    memory = stored(stream)[0].memory
    assert [record.n_trials for record in memory.records] == [5, 3]
    stream.rebuild(MODEL)
    assert stored(stream)[0].memory == memory


def test_a_trial_that_was_running_is_folded_in_when_it_is_over(storage):
    stream = lbo.Stream("heart", storage)
    first = run(stream, "a")
    running = first.ask()
    objective(running)
    run(stream, "b", n_trials=2)
    first.tell(running, 1.0)
    run(stream, "c", n_trials=1)
    assert [record.n_trials for record in stored(stream)[0].memory.records] == [4, 2]


def test_forgetting_leaves_what_never_seeing_the_task_would_have_left(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b", "c", "d")
    stream.forget("b")
    assert stream.tasks == ["a", "c", "d"]
    with pytest.raises(KeyError):
        optuna.load_study(study_name="heart/b", storage=stream.storage)

    never = lbo.Stream("heart", InMemoryStorage())
    for task in ["a", "c", "d"]:
        copy = never.study(task, model=MODEL)
        copy.add_trials(stream.study(task, model=MODEL).trials)
    never.rebuild(MODEL)
    assert stream.memory(MODEL) == never.memory(MODEL)
    assert '"b"' not in json.dumps(shelf_attributes(stream))


def shelf_attributes(stream):
    shelf = stream.storage.get_study_id_from_name(f"{stream.name}/:memory:")
    return stream.storage.get_study_system_attrs(shelf)


def test_forgetting_every_task_leaves_nothing(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b", direction="maximize")
    stream.forget("a")
    stream.forget("b")
    assert stream.tasks == []
    assert stream.storage.get_all_studies() == []
    stream.study("a", direction="minimize")  # the direction is free again


def test_studies_are_adopted_in_order(storage):
    stream = lbo.Stream("heart", storage)
    for name in ["x", "y", "z"]:
        study = optuna.create_study(study_name=name, storage=stream.storage, direction="maximize")
        study.optimize(objective, n_trials=2)
    run(stream, "own", direction="maximize")
    stream.adopt("z", "x")
    run(stream, "next", n_trials=1)
    stream.adopt("y")
    assert stream.tasks == ["own", "z", "x", "next", "y"]
    assert stored(stream)[0].memory.tasks == ["own", "z", "x"]
    assert stream.study("x", model=MODEL).study_name == "x"
    assert len(stream.study("x", model=MODEL).trials) == 2


def test_studies_are_copied_from_another_storage(storage, ram):
    elsewhere = f"sqlite:///{ram}/elsewhere.db"
    old = lbo.Stream("heart", elsewhere)
    run(old, "1985", "1986")
    optuna.create_study(study_name="loose", storage=elsewhere).optimize(objective, n_trials=2)
    old.study("1986", model=MODEL).ask()  # left running

    new = lbo.Stream("heart", storage)
    new.adopt("heart/1985", "heart/1986", "loose", storage=elsewhere)
    assert new.tasks == ["1985", "1986", "loose"]
    assert [len(new.study(task, model=MODEL).trials) for task in new.tasks] == [3, 3, 2]
    assert new.study("1986", model=MODEL).study_name == "heart/1986"
    old.adopt("loose")
    assert new.memory(MODEL) == old.memory(MODEL)


def test_another_model_makes_a_memory_of_its_own(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b")
    wide = run(stream, "b", model=Cheap(width=5), n_trials=1)
    assert stream.memory_for(wide).sharing.shape == (1, 5)
    assert stream.memory_for(stream.study("b", model=MODEL)).sharing.shape == (1, 3)
    assert {s.memory.model["width"] for s in stored(stream)} == {3, 5}


def test_resuming_an_old_task_does_not_show_it_its_own_trials(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b", "c", "d")  # the shelf has room for what c and d were made with
    on_shelf = stored(stream)
    again = run(stream, "b", n_trials=2)
    assert stream.memory_for(again).tasks == ["a"]
    assert [s.memory for s in stored(stream)] == [s.memory for s in on_shelf]
    run(stream, "e", n_trials=1)
    assert [record.n_trials for record in stored(stream)[0].memory.records] == [3, 5, 3, 3]


def test_a_task_far_back_counts_again_once_it_is_resumed(storage, monkeypatch):
    monkeypatch.setattr("lbo.stream.LOOK_BACK", 1)
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b", "c", n_trials=2)
    run(stream, "a", n_trials=1)
    run(stream, "d", n_trials=1)
    assert [record.n_trials for record in stored(stream)[0].memory.records] == [3, 2, 2]


def test_a_study_that_is_no_task_learns_from_all_and_leaves_no_trace(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b")
    before = [s.memory for s in stored(stream)]
    elsewhere, number = InMemoryStorage(), stream.study("b", model=MODEL)._study_id
    while (guest := optuna.create_study(storage=elsewhere))._study_id < number:  # the number of a task in the stream
        pass
    guest.sampler = lbo.LBOSampler(stream=stream, model=MODEL, seed=0)
    guest.optimize(objective, n_trials=1)
    assert stream.memory_for(guest).tasks == ["a", "b"]
    assert stream.tasks == ["a", "b"]
    assert [s.memory for s in stored(stream)] == before


def test_a_stream_with_nothing_to_remember_has_an_empty_memory(storage):
    stream = lbo.Stream("heart", storage)

    def fails(trial):
        trial.suggest_float("x", 0, 1)
        raise RuntimeError

    assert stream.memory(MODEL).tasks == []
    study = stream.study("a", model=MODEL)
    study.optimize(fails, n_trials=3, catch=RuntimeError)
    study.optimize(objective, n_trials=1)
    study = run(stream, "b", n_trials=1)
    assert stream.memory_for(study) is None
    memory = stream.memory(MODEL)
    assert (memory.tasks, memory.networks, memory.sharing.shape) == ([], 0, (0, 0))
    run(stream, "b", n_trials=1)
    assert stream.memory(MODEL).tasks == ["b"]


def test_a_study_in_another_process_goes_on(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a")
    study = stream.study("b", seed=0, model=MODEL)
    copy = pickle.loads(pickle.dumps(study))
    assert copy.sampler.model == MODEL
    if isinstance(stream.storage, InMemoryStorage):
        copy.optimize(objective, n_trials=1)  # its storage is a copy too
        return
    joblib.Parallel(n_jobs=2)(joblib.delayed(_optimize)(study) for _ in range(2))
    assert sorted(t.number for t in study.trials) == [0, 1]
    assert stored(stream)[0].memory.tasks == ["a"]


def _optimize(study):
    study.optimize(objective, n_trials=1)


def test_optunas_tools_read_a_task(storage):
    from optuna import importance, visualization

    stream = lbo.Stream("heart", storage)
    study = run(stream, "a", n_trials=4)
    assert study.trials_dataframe().shape[0] == 4
    assert visualization.plot_optimization_history(study).data
    assert visualization.plot_slice(study).data
    assert set(importance.get_param_importances(study, evaluator=importance.PedAnovaImportanceEvaluator())) <= {
        "x",
        "c",
    }
    names = optuna.get_all_study_names(stream.storage)
    assert "heart/a" in names


def test_ask_and_tell_and_threads_and_callbacks_work_without_a_warning(storage):
    stream = lbo.Stream("heart", storage)
    run(stream, "a")
    study = stream.study("b", seed=0, model=MODEL)
    trial = study.ask()
    study.tell(trial, objective(trial))
    asked = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    assert set(asked.params) == {"x"}
    seen = []
    study.optimize(objective, n_trials=4, n_jobs=2, callbacks=[lambda study, trial: seen.append(trial.number)])
    assert sorted(seen) == [2, 3, 4, 5]
    assert threading.active_count() < 10


# Rules and errors


@pytest.mark.parametrize("direction", ["maximize", optuna.study.StudyDirection.MAXIMIZE])
def test_another_direction_is_refused(sqlite, direction):
    stream = lbo.Stream("heart", sqlite)
    stream.study("a", direction="minimize")
    with pytest.raises(
        StreamError, match=r"direction of stream 'heart' is 'minimize', but study 'b' asked for 'maximize'"
    ):
        stream.study("b", direction=direction)
    assert stream.tasks == ["a"]
    with pytest.raises(StreamError, match="'minimize' or 'maximize', but got 'up'"):
        stream.study("b", direction="up")


def test_a_study_of_that_name_with_another_direction_is_refused(sqlite):
    stream = lbo.Stream("heart", sqlite)
    optuna.create_study(study_name="heart/a", storage=stream.storage, direction="maximize")
    with pytest.raises(StreamError, match="already, with 'maximize'"):
        stream.study("a", direction="minimize")


def test_unusual_names_are_kept(storage):
    names = ['it\'s "quoted"; drop table studies;--', "Ünïcodé 数据", "👩‍👩‍👧 family", "a b", "%s {x} \\ ?", "x" * 240]
    storage = lbo.Stream("any", storage).storage
    for name in names:
        stream = lbo.Stream(name, storage)
        run(stream, name, name + "2", n_trials=2)
        assert stream.tasks == [name, name + "2"]
        assert stream.memory(MODEL).tasks == stream.tasks
    assert lbo.streams(storage) == sorted(names)


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "tab\t", "\x00", "\ud800", "x" * 10_000, None, 7])
def test_impossible_names_are_refused(name):
    stream = lbo.Stream("heart", InMemoryStorage())
    with pytest.raises(StreamError) as stream_error:
        lbo.Stream(name, stream.storage)
    with pytest.raises(StreamError) as task_error:
        stream.study(name)
    for error in (stream_error, task_error):
        assert len(str(error.value)) < 300
    assert stream.storage.get_all_studies() == []


def test_names_with_slashes(sqlite):
    with pytest.raises(StreamError, match="no slash"):
        lbo.Stream("a/b", sqlite)
    stream = lbo.Stream("a", sqlite)
    stream.study("b/c")
    assert stream.tasks == ["b/c"]
    assert lbo.Stream("b", sqlite).tasks == []


def test_the_memorys_own_name_and_long_pairs_are_refused(sqlite):
    with pytest.raises(StreamError, match="where the memory lives"):
        lbo.Stream("a", sqlite).study(":memory:")
    with pytest.raises(StreamError, match="together have fewer than 500 characters, but these have 600"):
        lbo.Stream("a" * 300, sqlite).study("b" * 300)


def test_what_cannot_be_adopted_is_refused_and_nothing_changes(sqlite):
    stream = lbo.Stream("heart", sqlite)
    run(stream, "own")
    run(lbo.Stream("liver", stream.storage), "theirs")
    for name, directions in {"up": ["maximize"], "two": ["minimize"] * 2, "good": ["minimize"]}.items():
        optuna.create_study(study_name=name, storage=stream.storage, directions=directions)
    refused = {
        "nowhere": "no study 'nowhere'",
        "up": "'maximize'",
        "two": "one objective, but 'two' has 2",
        "liver/theirs": "belongs to 'liver'",
        "liver/:memory:": "memory and not a study",
        "heart/own": "has a task 'own' already",
        "good": "has a task 'good' already",  # given twice
    }
    for name, message in refused.items():
        with pytest.raises(StreamError, match=message):
            stream.adopt("good", name)
        assert stream.tasks == ["own"]
    with pytest.raises(StreamError, match="direction of stream 'heart' is 'minimize'"):
        stream.adopt("up")
    stream.adopt("good")
    assert stream.tasks == ["own", "good"]


def test_a_name_that_is_taken_stops_a_copy(sqlite, ram):
    elsewhere = f"sqlite:///{ram}/elsewhere.db"
    optuna.create_study(study_name="a", storage=elsewhere)
    stream = lbo.Stream("heart", sqlite)
    optuna.create_study(study_name="heart/a", storage=stream.storage)
    with pytest.raises(StreamError, match="'heart/a' in the stream's storage already"):
        stream.adopt("a", storage=elsewhere)


def test_an_unknown_task_is_not_forgotten(sqlite):
    stream = lbo.Stream("heart", sqlite)
    stream.study("a")
    with pytest.raises(StreamError, match="no task 'b'; its tasks are: 'a'"):
        stream.forget("b")


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("lbo.db", "SQLAlchemy can open"),
        ("nosuch://host/x", "SQLAlchemy can open"),
        (7, "an Optuna storage or a URL"),
        ("sqlite:////nowhere/at/all/lbo.db", "does not open: unable to open"),
    ],
)
def test_a_storage_that_does_not_open_is_explained(storage, message):
    with pytest.raises(StreamError, match=message):
        lbo.Stream("heart", storage)


def test_a_password_is_not_printed(monkeypatch):
    monkeypatch.setattr("lbo.storage._OPENING_ATTEMPTS", 1)
    with pytest.raises(StreamError) as error:
        lbo.Stream("heart", "postgresql+psycopg://me:secret@localhost:1/x")
    assert "secret" not in str(error.value)
    assert "me:***@localhost" in str(error.value)


# Spaces that change


def test_a_parameter_that_changes_its_type_is_refused(sqlite):
    stream = lbo.Stream("heart", sqlite)
    run(stream, "a")
    with pytest.raises(SpaceError, match="'x'"):
        run(stream, "b", objective=lambda trial: trial.suggest_categorical("x", [0, 1]), n_trials=1)


def test_an_adopted_task_that_does_not_fit_is_named(sqlite):
    stream = lbo.Stream("heart", sqlite)
    run(stream, "a")
    odd = optuna.create_study(study_name="odd", storage=stream.storage)
    odd.optimize(lambda trial: trial.suggest_int("x", 0, 1), n_trials=2)
    stream.adopt("odd")
    with pytest.raises(StreamError, match=r"Task 'odd' does not fit .*stream.forget\('odd'\)"):
        run(stream, "b")
    stream.forget("odd")
    run(stream, "b", n_trials=1)


def grown(trial):
    trial.suggest_float("x", -1, 2)
    trial.suggest_categorical("c", ["p", "q", "new"])
    return trial.suggest_int("depth", 1, 5)


def shrunk(trial):
    trial.suggest_categorical("c", ["q"])
    return trial.suggest_float("x", 0.2, 0.4)


def conditional(trial):
    kind = trial.suggest_categorical("c", ["p", "q", "forest"])
    if kind == "forest":
        return float(trial.suggest_int("trees", 10, 100))
    return trial.suggest_float("x", 0, 1)


@pytest.mark.parametrize("model", [MODEL, Paper(networks=2, units=4, steps=2)], ids=["cheap", "paper"])
def test_spaces_grow_and_shrink_from_task_to_task(sqlite, model):
    stream = lbo.Stream("heart", sqlite)
    for task, function in {"a": objective, "b": grown, "c": shrunk, "d": conditional, "e": objective}.items():
        stream.study(task).enqueue_trial({"c": "forest"} if task == "d" else {"c": "q"})
        study = run(stream, task, objective=function, n_trials=3, model=model)
        assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 3
    memory = stream.memory(model)
    assert memory.tasks == ["a", "b", "c", "d", "e"]
    assert set(memory.space.names) == {"x", "c", "depth", "trees"}


# Determinism


TWO_TASKS = """
import sys, optuna, lbo
optuna.logging.set_verbosity(optuna.logging.ERROR)
from lbo.models import Paper
model = Paper(networks=2, units=4, steps=2)
stream = lbo.Stream("heart", sys.argv[1])
if not stream.tasks:
    for task in "ab":
        stream.study(task, seed=0, model=model).optimize(
            lambda trial: trial.suggest_float("x", 0, 1) ** 2 - trial.suggest_int("k", 1, 9), n_trials=3)
sys.stdout.write(stream.memory(model).to_bytes().decode())
"""


def test_the_same_trials_give_the_same_bytes_in_every_process_and_storage(sqlite, new_database):
    def memory_in_a_new_process(url):
        return subprocess.run([sys.executable, "-c", TWO_TASKS, url], capture_output=True, text=True, check=True).stdout

    first = memory_in_a_new_process(sqlite)
    assert len(first) > 500
    assert memory_in_a_new_process(sqlite) == first
    postgres = new_database()
    lbo.Stream("heart", postgres).adopt("heart/a", "heart/b", storage=sqlite)
    assert memory_in_a_new_process(postgres) == first


def test_memory_uses_the_stored_memorys_model(sqlite):
    model = Paper(networks=2, units=4, steps=2)
    stream = lbo.Stream("heart", sqlite)
    run(stream, "a", "b", model=model)
    assert stream.memory().model == {"name": "Paper", **vars(model)}
    stream.forget("a")
    stream.rebuild()
    assert stream.memory().tasks == ["b"]


# Records that are not ours


FOREIGN = {
    "no header": "",
    "another header": "[]\n",
    "a future format": '{"format": 2, "covers": [], "made_for": 1}\n',
    "tasks of another kind": '{"format": 1, "covers": [7], "made_for": 1}\n',
    "a foreign memory": '{"format": 1, "covers": [], "made_for": 1}\n{"format": 1, "weights": "__import__(\\"os\\")"}',
    "a future memory": '{"format": 1, "covers": [], "made_for": 1}\n{"format": 2}',
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_record_that_is_not_ours_is_reported_and_replaced(storage, text, caplog):
    stream = lbo.Stream("heart", storage)
    run(stream, "a", "b")
    expected = stream.memory(MODEL)
    shelf = stream.storage.get_study_id_from_name("heart/:memory:")
    for slot in "ab":
        stream.storage.set_study_system_attr(shelf, f"lbo:memory:{slot}:0", text)
        marker = {"chunks": 1, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        stream.storage.set_study_system_attr(shelf, f"lbo:memory:{slot}", marker)
    assert stream.memory(MODEL) == expected
    assert "derived again from the trials" in caplog.text
    run(lbo.Stream("heart", stream.storage), "c", n_trials=1)
    caplog.clear()
    assert stored(stream)[0].memory == expected


# What is kept, and for how long


def test_memory_holds_parameters_and_values_and_nothing_else_of_the_user(sqlite):
    stream = lbo.Stream("heart", sqlite)

    def leaky(trial):
        trial.set_user_attr("patient", "SECRET")
        trial.report(0.5, 1)
        return objective(trial)

    study = run(stream, "a", "b", objective=leaky)
    study.set_user_attr("cohort", "SECRET")
    stream.rebuild(MODEL)
    assert "SECRET" not in json.dumps(shelf_attributes(stream))
    assert b"SECRET" not in stream.memory(MODEL).to_bytes()
    assert set(json.loads(stream.memory(MODEL).to_bytes())["records"][0]) == {
        "task", "n_trials", "digest", "gates", "hyper", "best",
    }  # fmt: skip


def test_a_chunk_fits_every_column(sqlite, monkeypatch):
    from lbo import shelf

    worst = 'é"\\' * shelf.CHUNK
    assert len(json.dumps(json.dumps(worst)[: shelf.CHUNK])) <= 65_535
    monkeypatch.setattr(shelf, "CHUNK", 50)
    stream = lbo.Stream("heart", sqlite)
    run(stream, "a", "b", "c")
    many = len([v for v in shelf_attributes(stream).values() if v])
    assert many > 10
    memory = stream.memory(MODEL)
    monkeypatch.setattr(shelf, "CHUNK", 500)
    assert stream.memory(MODEL) == memory
    stream.forget("a")
    assert len([v for v in shelf_attributes(stream).values() if v]) < many / 3


def test_a_process_that_runs_many_tasks_keeps_one_memory(sqlite):
    stream = lbo.Stream("heart", sqlite)
    run(stream, *"abcdef", n_trials=2)
    gc.collect()
    assert len(stream._pinned) <= 1


def test_resuming_the_newest_task_reads_no_other_task(sqlite):
    run(lbo.Stream("heart", sqlite), *"abcd")
    stream = lbo.Stream("heart", sqlite)
    read = []
    backend = stream.storage._backend
    trials, studies = backend._get_trials, backend.get_all_studies
    backend._get_trials = lambda study_id, **rest: read.append(study_id) or trials(study_id, **rest)
    backend.get_all_studies = lambda: read.append("all") or studies()
    study = run(stream, "d", n_trials=2)
    assert set(read) == {study._study_id}


def test_a_number_that_a_database_uses_again_brings_no_memory_back(sqlite):
    stream = lbo.Stream("heart", sqlite)
    run(stream, "a", "b", "c")
    numbers = [t.study_id for t in stream._list()]
    for task in ["c", "b"]:
        optuna.delete_study(study_name=f"heart/{task}", storage=stream.storage)
    stream = lbo.Stream("heart", sqlite)
    study = run(stream, "b", "c", objective=lambda trial: 100 + objective(trial))
    assert [t.study_id for t in stream._list()] == numbers  # or this tests nothing
    assert stream.memory_for(study).records[1].best[0][1] > 100


# Workers in each other's way


def test_the_first_of_two_workers_decides(sqlite, monkeypatch):
    stream, other = lbo.Stream("heart", sqlite), lbo.Stream("heart", sqlite)
    run(stream, "a")
    study = stream.study("b", seed=0, model=MODEL)
    fold = lbo.stream.fold

    def overtaken(*arguments):
        monkeypatch.setattr("lbo.stream.fold", fold)
        run(other, "a", n_trials=1)
        run(other, "b", n_trials=1)
        return fold(*arguments)

    monkeypatch.setattr("lbo.stream.fold", overtaken)
    study.optimize(objective, n_trials=1)
    assert stream.memory_for(study) == stored(stream)[0].memory
    assert stored(stream)[0].memory.records[0].n_trials == 4


def test_a_task_forgotten_while_it_is_folded_in_stays_forgotten(sqlite, monkeypatch):
    stream = lbo.Stream("heart", sqlite)
    run(stream, "a", "b")
    study = stream.study("c", seed=0, model=MODEL)
    write = lbo.shelf.Shelf.write

    def late(shelf, shelved):
        monkeypatch.setattr("lbo.shelf.Shelf.write", write)
        lbo.Stream("heart", sqlite).forget("a")
        write(shelf, shelved)

    monkeypatch.setattr("lbo.shelf.Shelf.write", late)
    study.optimize(objective, n_trials=1)
    assert stream.memory_for(study).tasks == ["b"]
    assert '"a"' not in json.dumps(shelf_attributes(stream))


def test_a_crash_while_a_task_is_created_is_mended_by_the_next_try(sqlite, monkeypatch):
    stream = lbo.Stream("heart", sqlite)
    for failing in range(1, 12):
        calls = iter(range(failing))
        monkeypatch.setattr(stream, "_storage", _Failing(stream.storage, calls))
        try:
            run(stream, "a", direction="maximize", n_trials=1)
        except ConnectionError:
            stream = lbo.Stream("heart", sqlite)
    monkeypatch.undo()
    run(stream, "b", direction="maximize", n_trials=1)
    assert stream.tasks == ["a", "b"]


class _Failing:
    """A storage whose process dies at the n-th write of an attribute."""

    def __init__(self, storage, calls):
        self._real, self._calls = storage, calls

    def __getattr__(self, name):
        return getattr(self._real, name)

    def set_study_system_attr(self, *arguments):
        if next(self._calls, None) is None:
            raise ConnectionError
        self._real.set_study_system_attr(*arguments)


def test_every_error_is_one_of_ours():
    assert issubclass(StreamError, LboError)
    assert issubclass(StreamError, ValueError)


def test_the_default_storage_is_a_file_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lbo.Stream("heart").study("a")
    assert Path("lbo.db").exists()


def test_a_stream_whose_shelf_was_deleted_keeps_its_direction():
    stream = lbo.Stream("s", storage=optuna.storages.InMemoryStorage())
    stream.study("a", direction="maximize", model=Cheap())
    optuna.delete_study(study_name="s/:memory:", storage=stream.storage)
    assert stream.study("b", model=Cheap()).direction == optuna.study.StudyDirection.MAXIMIZE
    assert stream.direction == "maximize"
