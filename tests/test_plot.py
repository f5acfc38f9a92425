"""The figures hold what the storage holds, and names are text in them."""

import sys

import numpy as np
import pytest

from lbo import history, plot
from lbo.errors import MissingExtra
from lbo.history import memories, past_tasks
from lbo.models import Paper, default_model
from past_streams import MODELS, grid_trials, stream_of, trial

FIGURES = [plot.best_values, plot.progress, plot.speed_up, plot.sharing, plot.similarity, plot.drift, plot.memory_size]


def bowl(x, y):
    return (x - 0.3) ** 2 + (y - 0.7) ** 2 + 0.3 * np.sin(5 * x)


@pytest.fixture(scope="module")
def stream():
    """Three tasks: a bowl, its negative, and the first one again but higher up."""
    return stream_of(
        {
            "first": grid_trials(bowl),
            "opposite": grid_trials(lambda x, y: -bowl(x, y)),
            "same": grid_trials(lambda x, y: 5 + 2 * bowl(x, y)),
        }
    )


def test_progress_is_the_best_so_far_in_either_direction():
    values = [None, 3.0, 1.0, 2.0, None, 4.0]
    for direction, expected in (
        ("minimize", [None, 3.0, 1.0, 1.0, 1.0, 1.0]),
        ("maximize", [None, 3.0, 3.0, 3.0, 3.0, 4.0]),
    ):
        figure = plot.progress(stream_of({"a": [trial(value) for value in values]}, direction=direction))
        assert list(figure.data[0].y) == expected
        assert list(figure.data[0].x) == [1, 2, 3, 4, 5, 6]


def test_speed_up_counts_trials_to_the_previous_best():
    tasks = {"a": [3.0, 1.0, 2.0], "b": [4.0, 3.0, 1.0], "c": [2.0, 2.0]}
    figure = plot.speed_up(stream_of({task: [trial(value) for value in values] for task, values in tasks.items()}))
    before, needed, in_vain = (list(bars.y) for bars in figure.data)
    assert (before, needed, in_vain) == ([2, 3], [3, None], [None, 2])
    assert list(figure.layout.xaxis.ticktext) == ["b", "c"]


def test_sharing_is_that_of_the_memory(stream):
    figure, memory = plot.sharing(stream), stream.memory()
    used = memory.sharing.max(axis=0) > 0
    np.testing.assert_allclose(np.array(figure.data[0].z), memory.sharing[:, used], atol=1e-3)
    assert list(figure.layout.xaxis.ticktext) == [str(m) for m in np.flatnonzero(used)]


def test_similarity_tells_the_same_function_from_its_opposite(stream):
    alike = np.array(plot.similarity(stream).data[0].z)
    np.testing.assert_allclose(alike, alike.T)
    np.testing.assert_allclose(np.diag(alike), 1, atol=1e-3)
    assert alike[0, 2] > 0.9
    assert alike[0, 1] < -0.9


def test_similarity_of_another_model_is_that_of_its_gates():
    tasks = {task: grid_trials(bowl, side=2) for task in "ab"}
    stream = stream_of(tasks)
    stream.rebuild(Paper(networks=3, units=4, steps=2))
    gates = stream.memory().sharing
    expected = gates[0] @ gates[1] / np.linalg.norm(gates[0]) / np.linalg.norm(gates[1])
    assert plot.similarity(stream).data[0].z[0][1] == pytest.approx(expected, abs=1e-3)


def test_drift_puts_what_moved_first_and_leaves_out_what_nobody_used():
    tasks = {
        "a": [trial(1.0, {"model": "tree", "depth": 2.0}, MODELS), trial(9.0, {"model": "line", "slope": 0.1}, MODELS)],
        "b": [trial(1.0, {"model": "tree", "depth": 50.0}, MODELS)],
    }
    tasks["a"] += [trial(2.0, {"model": "tree", "depth": 3.0}, MODELS)] * 2
    figure = plot.drift(stream_of(tasks))
    assert [note.text for note in figure.layout.annotations] == ["depth", "model"]
    lines = [trace for trace in figure.data if "lines" in trace.mode]
    assert [list(line.y) for line in lines] == [[2.0, 50.0], ["tree", "tree"]]
    assert figure.layout.yaxis.type == "log"
    assert list(figure.layout.yaxis2.categoryarray) == ["tree", "line"]
    low, high = (10**end for end in figure.layout.yaxis.range)
    assert low < 1.0
    assert high > 100.0


def test_memory_size_ends_with_that_of_now(stream):
    figure = plot.memory_size(stream)
    assert len(figure.data[0].y) == 3
    assert figure.data[0].y[-1] == pytest.approx(stream.memory().nbytes / 1024)


@pytest.fixture(scope="module")
def long_stream():
    """More tasks than memories are derived for; every one the same bowl, so that all of them are alike."""
    tasks = {f"t{n}": grid_trials(bowl, side=2) for n in range(plot.DERIVED + 3)}
    stream = stream_of(tasks)
    stream.rebuild()
    return stream


def test_of_a_long_stream_only_the_shown_tasks_are_folded(long_stream, monkeypatch):
    folded = []
    monkeypatch.setattr(history, "fold", lambda *args, fold=history.fold: folded.append(args[2]) or fold(*args))
    assert np.array(plot.similarity(long_stream, last=4).data[0].z).min() > 0.9
    assert folded == [f"t{n}" for n in range(29, 33)]
    for figure in (plot.best_values, plot.progress, plot.speed_up, plot.sharing, plot.drift, plot.memory_size):
        figure(long_stream)
    assert len(folded) == 4


def test_the_memorys_size_in_a_long_stream_grows_by_its_records(long_stream):
    figure, memory = plot.memory_size(long_stream, last=3), long_stream.memory()
    assert list(figure.layout.xaxis.ticktext) == ["t30", "t31", "t32"]
    assert figure.data[0].y[-1] == memory.nbytes / 1024
    steps = np.diff(figure.data[0].y) * 1024
    assert (steps > 50).all()
    assert (steps < 1000).all()


def test_best_values_are_those_of_all_tasks_and_few_of_them_are_named(long_stream):
    figure = plot.best_values(long_stream)
    assert list(figure.data[0].y) == [min(t.value for t in grid_trials(bowl, side=2))] * 33
    named = figure.layout.xaxis.ticktext
    assert len(named) <= plot.MOST_NAMES["x"]
    assert named[-1] == "t32"


def test_memories_that_are_known_are_not_derived_again(stream, monkeypatch):
    after = list(memories(stream, default_model()))
    expected = [figure(stream) for figure in (plot.similarity, plot.memory_size)]
    monkeypatch.setattr(plot, "memories", lambda *_: pytest.fail("derived again"))
    assert [figure(stream, after=after) for figure in (plot.similarity, plot.memory_size)] == expected


@pytest.mark.parametrize("figure", FIGURES)
def test_only_the_last_tasks_are_shown(stream, figure):
    shown = str(figure(stream, last=1).to_plotly_json())
    assert "same" in shown
    assert "first" not in shown


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("tasks", [{}, {"a": []}, {"a": [trial(None)]}, {"a": [trial(float("inf"))]}])
def test_a_stream_without_values_says_so(figure, tasks):
    drawn = figure(stream_of(tasks))
    assert not drawn.layout.xaxis.visible
    assert any(note.text.endswith(".") for note in drawn.layout.annotations)


@pytest.mark.parametrize("figure", FIGURES)
def test_names_are_text(figure):
    name = "<b>bold</b>"
    drawn = figure(stream_of({"plain": grid_trials(bowl, side=2), name: grid_trials(bowl, side=2)}))
    shown = str(drawn.to_plotly_json())
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown
    assert name not in shown


def test_two_names_that_begin_alike_stay_two():
    names = ["a" * 40 + end for end in "xy"]
    figure = plot.memory_size(stream_of({name: grid_trials(bowl, side=2) for name in names}))
    assert list(figure.data[0].x) == [0, 1]


def test_plotting_writes_nothing_to_the_storage(stream):
    before = [study.system_attrs for study in stream.storage.get_all_studies()]
    for figure in FIGURES:
        figure(stream)
    assert [study.system_attrs for study in stream.storage.get_all_studies()] == before
    assert [task.name for task in past_tasks(stream)] == ["first", "opposite", "same"]


@pytest.mark.parametrize("figure", FIGURES)
def test_without_plotly_the_extra_is_named(stream, figure, monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingExtra, match=r"lbo\[plot\]"):
        figure(stream)
