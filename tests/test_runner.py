"""The runner: the same command gives the same file, a kill costs nothing, nobody gets more than the others."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest

pytest.importorskip("pandas")

import pandas as pd

from lbo.experiments import figures, methods, results, runner, scoreboard, sequences, summary, synthetic
from lbo.experiments.branin import Branin
from lbo.experiments.methods import METHODS, Method
from lbo.experiments.problems import Rows
from lbo.experiments.sequences import BraninSequence, SyntheticSequence
from lbo.experiments.summary import Results
from lbo.experiments.tables import Table
from lbo.models.paper import Paper
from lbo.seeds import Seed

TINY = Method("Paper", Paper(networks=3, units=8, steps=5), remembers=True)


def small(out, *names, trials=7, repeats=1, seed=0, tasks=2):
    return runner.Plan((BraninSequence(0.05, tasks),), methods.pick(names), repeats, trials, seed, Path(out))


def trials_of(plan):
    return (plan.out / "trials.csv").read_bytes()


def rows_of(plan):
    with (plan.out / "trials.csv").open() as file:
        return list(csv.DictReader(file))


# --- the same again, killed, changed ---


def test_the_same_command_twice_gives_the_same_trials_whatever_the_number_of_processes(tmp_path):
    one, two = (small(tmp_path / name, "Random", "SGP", "WinnersSGP", repeats=2) for name in ("one", "two"))
    runner.run(one, jobs=1)
    runner.run(two, jobs=2)
    assert trials_of(one) == trials_of(two)


def test_another_seed_gives_other_trials(tmp_path):
    plans = [small(tmp_path / str(seed), "Random", seed=seed) for seed in (0, 1)]
    for plan in plans:
        runner.run(plan)
    assert trials_of(plans[0]) != trials_of(plans[1])


SLOW_RUN = """
import sys, time
from pathlib import Path
from lbo.experiments import methods, runner
from lbo.experiments.sequences import BraninSequence

append = runner._append
def slowly(*arguments):
    append(*arguments)
    time.sleep(0.1)
runner._append = slowly
runner.run(runner.Plan((BraninSequence(0.05, 3),), methods.pick(["WinnersSGP"]), 1, 7, 0, Path(sys.argv[1])))
"""


def test_a_killed_run_goes_on_and_ends_with_the_trials_of_an_uninterrupted_one(tmp_path):
    whole, killed = (small(tmp_path / name, "WinnersSGP", tasks=3) for name in ("whole", "killed"))
    [unit] = killed.units()
    process = subprocess.Popen([sys.executable, "-c", SLOW_RUN, killed.out], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (unit.path.is_file() and unit.path.read_text().count("\n") >= 10):  # in the middle of the second task
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made = unit.path.read_text().splitlines()
    assert 10 <= len(made) < 21

    made_again = []
    runner.run_unit(unit, made_again.append)
    assert made_again[0] == 7  # the first task is not repeated
    assert sum(made_again) == 21
    runner.run(whole)
    runner.run(killed)
    assert trials_of(killed) == trials_of(whole)


@pytest.mark.parametrize("name", ["MTGP", "Lifelong", "TPE"])
def test_a_unit_cut_in_the_middle_of_its_last_task_goes_on_as_if_nothing_had_been(tmp_path, name):
    plans = [small(tmp_path / folder, name, tasks=3) for folder in ("whole", "cut")]
    for plan in plans:
        runner.run(plan)
    [unit] = plans[1].units()
    lines = unit.path.read_text().splitlines(keepends=True)
    unit.path.write_text("".join(lines[:16]) + lines[16][:5])  # a line half written
    runner.run(plans[1])
    assert trials_of(plans[0]) == trials_of(plans[1])


def test_a_finished_run_makes_no_trial_again(tmp_path):
    plan = small(tmp_path, "SGP")
    runner.run(plan)
    [unit] = plan.units()
    before = unit.path.stat().st_mtime_ns
    runner.run(plan)
    assert unit.path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "change",
    [
        {"trials": 6},
        {"seed": 1},
        {"sequences": (BraninSequence(0.05, 3),)},
        {"methods": (replace(TINY, model=replace(TINY.model, steps=6)),)},
    ],
)
def test_a_changed_setting_starts_anew_and_more_repetitions_do_not(tmp_path, change):
    plan = replace(small(tmp_path), methods=(TINY,))
    assert {u.path for u in plan.units()}.isdisjoint({u.path for u in replace(plan, **change).units()})
    assert {u.path for u in plan.units()} < {u.path for u in replace(plan, repeats=2).units()}


def test_a_changed_model_starts_anew_and_a_changed_comment_does_not(monkeypatch):
    source = Path(sys.modules["lbo.models.paper"].__file__).read_text()

    def settings_with(text):
        methods._code.cache_clear()
        monkeypatch.setattr(methods.inspect, "getsource", lambda module: text)
        return TINY.settings()

    assert settings_with(source) == settings_with(source.replace('"""The paper', '# why\n"""Our paper', 1))
    assert settings_with(source) != settings_with(source.replace("RATE = 1e-2", "RATE = 2e-2"))
    methods._code.cache_clear()


def test_a_worker_does_not_outlive_its_parent(tmp_path):
    code = SLOW_RUN.replace("0, Path(sys.argv[1])))", "0, Path(sys.argv[1])), jobs=2)")
    script = tmp_path / "run.py"
    script.write_text("\n".join(["if __name__ == '__main__':", *(f"    {line}" for line in code.splitlines())]))
    process = subprocess.Popen([sys.executable, script, tmp_path / "out"], stdout=subprocess.DEVNULL)
    files = tmp_path / "out" / "units"
    deadline = time.monotonic() + 60
    while not list(files.glob("**/*.seconds.csv")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = children(process.pid)
    assert workers
    process.kill()
    process.wait()
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_worker_that_finds_other_code_refuses_to_work(tmp_path):
    [unit] = small(tmp_path, "SGP").units()
    with pytest.raises(runner.CodeChanged):
        runner._run_in_worker(replace(unit, fingerprint="of yesterday"))


# --- fairness ---


EVERYBODY = tuple(m for m in METHODS.values() if not methods.missing([m.name]))


def played(tmp_path, method, sequence, trials):
    plan = runner.Plan((sequence,), (method,), 1, trials, 0, tmp_path)
    runner.run(plan)
    return [(int(row["task"]), int(row["trial"]), row["value"], row["at"]) for row in rows_of(plan)]


@pytest.mark.parametrize("method", EVERYBODY, ids=lambda method: method.name)
def test_every_method_begins_with_the_same_five_points_unless_it_opens_with_its_memory(tmp_path, method):
    unit = runner.make_unit(BraninSequence(0.05, 2), METHODS["Random"], 0, 5, 0, tmp_path)
    shared = [unit.initial(task, problem, 5) for task, problem in enumerate(unit.problems())]
    rows = played(tmp_path, method, BraninSequence(0.05, 2), 5)
    points = [[json.loads(at) for t, _, _, at in rows if t == task] for task in (0, 1)]
    assert points[0] == shared[0]
    if method.opens or method.keeps:
        assert points[1][0] != shared[1][0]
        assert method.remembers or method.keeps
    else:
        assert points[1] == shared[1]


def test_only_what_remembers_may_open(tmp_path):
    assert {m.name for m in METHODS.values() if m.opens} == {"Lifelong", "WinnersSGP"}
    assert not any(m.opens and not m.remembers for m in METHODS.values())


def test_every_method_makes_the_same_number_of_trials_and_previous_one_per_task_after_the_first():
    for method in METHODS.values():
        assert method.budget(0, 50) == 50
        assert method.budget(1, 50) == (1 if method.name == "Previous" else 50)


def test_all_methods_are_told_the_same_values_at_the_same_points(tmp_path):
    plan = runner.Plan((SyntheticSequence("noisy"),), methods.pick(["Random", "SGP", "TPE"]), 1, 6, 0, tmp_path)
    runner.run(plan)
    told = {}
    for row in rows_of(plan):
        key = (row["task"], row["trial"], row["at"])
        assert told.setdefault(key, row["value"]) == row["value"]
        assert row["value"] != row["truth"]
    shared = {key for key in told if int(key[1]) < 5}
    assert len(shared) == 25  # five points in each of five tasks, whoever asks


def test_previous_keeps_the_best_of_the_first_task(tmp_path):
    rows = played(tmp_path, METHODS["Previous"], BraninSequence(0.05, 3), 8)
    best = min((row for row in rows if row[0] == 0), key=lambda row: float(row[2]))
    assert [row[3] for row in rows if row[0] > 0] == [best[3]] * 2


def test_nobody_evaluates_a_row_of_a_table_twice(tmp_path, monkeypatch):
    monkeypatch.setitem(sequences.TABLES, "made", made_tables)
    sequences.load_tables.cache_clear()
    plan = runner.Plan(
        (sequences.TableSequence("made"),), methods.pick(["Random", "SGP", "WinnersSGP", "TPE"]), 1, 12, 0, tmp_path
    )
    runner.run(plan)
    frame = pd.read_csv(plan.out / "trials.csv")
    assert (frame.groupby(["method", "task"])["at"].nunique() == 12).all()
    opened = frame[(frame["trial"] < 5) & (frame["method"] != "WinnersSGP")]
    assert (opened.groupby(["task", "trial"])["at"].nunique() == 1).all()


def made_tables():
    rng = np.random.default_rng(0)
    x = rng.random((30, 2))
    rows = [{"x1": float(a), "x2": float(b)} for a, b in x]
    return [
        Table(f"made/{t}", dict(synthetic.SQUARE), rows, ((x - c) ** 2).sum(axis=1)) for t, c in enumerate((0.3, 0.4))
    ]


def test_a_thinned_table_is_a_part_of_the_table():
    table = made_tables()[0]
    thin = sequences.thinned(table, 10)
    assert len(thin) == 10
    assert all(thin.values[i] == table.values[table.rows.index(row)] for i, row in enumerate(thin.rows))
    assert sequences.thinned(table, 30) is table


@pytest.mark.parametrize("name", ["SGP", "MTGP", "Lifelong"])
def test_the_runner_makes_the_trials_that_a_user_of_the_public_face_would(tmp_path, name):
    import lbo

    method, sequence = METHODS[name], BraninSequence(0.05, 2)
    rows = played(tmp_path, method, sequence, 8)
    unit = runner.make_unit(sequence, method, 0, 8, 0, tmp_path)
    stream = lbo.Stream(f"{sequence.name} 0", storage=optuna.storages.InMemoryStorage())
    for task, problem in enumerate(unit.problems()):
        seed = unit.sampler_seed(task)
        if method.remembers:
            study = stream.study(f"{task}", direction="minimize", model=method.model, seed=seed)
        else:
            study = optuna.create_study(sampler=lbo.LBOSampler(model=method.model, seed=seed))
        for at in unit.initial(task, problem, method.drawn(task, 8)):
            study.enqueue_trial(at)
        study.optimize(lambda trial, f=problem: f.evaluate(f._suggest(trial), trial.number), n_trials=8)
        assert [trial.value for trial in study.trials] == [float(row[2]) for row in rows if row[0] == task]


# --- functions ---


def test_a_branin_problem_is_the_branin_function():
    f = Branin(r=5.0)
    problem, at = sequences.from_branin("f", f), {"x1": 2.0, "x2": 3.0}
    assert problem.truth(at) == pytest.approx(f.objective(optuna.trial.FixedTrial(at)), rel=1e-12)
    assert (problem.minimum, problem.std) == (f.minimum.value, f.std)


@pytest.mark.parametrize("name", synthetic.SEQUENCES)
def test_no_random_point_of_a_made_function_beats_its_minimum(name):
    points = np.random.default_rng(0).random((5000, 2))
    for problem in SyntheticSequence(name).tasks(Seed(3)):
        assert problem.f(points).min() >= problem.minimum - 1e-12
        assert problem.std > 0
        assert problem.spread > problem.std


def test_a_made_sequence_is_the_same_for_the_same_seed_and_its_families_are_shared():
    at = {"x1": 0.3, "x2": 0.6}
    for name in synthetic.SEQUENCES:
        first, again, other = (SyntheticSequence(name).tasks(Seed(seed)) for seed in (1, 1, 2))
        assert [p.evaluate(at, 4) for p in first] == [p.evaluate(at, 4) for p in again]
        assert [p.evaluate(at, 4) for p in first] != [p.evaluate(at, 4) for p in other]
    family, alternating = (SyntheticSequence(name).tasks(Seed(1)) for name in ("family", "alternating"))
    assert [family[t].truth(at) for t in (0, 1, 2)] == [alternating[t].truth(at) for t in (0, 2, 4)]


def test_misleading_pasts_mislead():
    points = np.random.default_rng(0).random((2000, 2))

    def correlation(name):
        *past, task = SyntheticSequence(name).tasks(Seed(5))
        return np.mean([np.corrcoef(p.f(points), task.f(points))[0, 1] for p in past])

    assert correlation("sign-flipped") < -0.7
    assert abs(correlation("shuffled-labels")) < 0.1
    assert correlation("moved-optimum") < 0.7
    assert correlation("other-noise") > 0.7
    assert SyntheticSequence("other-noise").tasks(Seed(5))[0].noise > 0
    assert SyntheticSequence("other-noise").tasks(Seed(5))[-1].noise == 0


# --- numbers ---


def made_results(values, sequence="made", minimum=0.0, std=2.0, spread=4.0, seconds=0.5):
    """values: {(method, repetition, task): [value of each trial]}."""
    rows = [(sequence, m, r, t, n, v, v, "{}") for (m, r, t), column in values.items() for n, v in enumerate(column)]
    trials = pd.DataFrame(rows, columns=list(runner.TRIAL_COLUMNS))
    tasks = sorted({(r, t) for _, r, t in values})
    scales = [(sequence, r, t, f"{sequence}/{t}", minimum, std, spread) for r, t in tasks]
    timed = trials[list(runner.SECONDS_COLUMNS[:-1])].assign(seconds=seconds)
    return Results(trials, timed, pd.DataFrame(scales, columns=list(runner.TASK_COLUMNS)))


def line(table, **where):
    chosen = table
    for column, value in where.items():
        chosen = chosen[chosen[column] == value]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_summary_numbers_are_those_of_a_hand_computation():
    made = {
        ("Random", 0, 0): [9.0, 9.0], ("Random", 0, 1): [4.0, 6.0], ("Random", 0, 2): [8.0, 2.0],
        ("Random", 1, 0): [9.0, 9.0], ("Random", 1, 1): [6.0, 6.0], ("Random", 1, 2): [2.0, 4.0],
        ("Lifelong", 0, 0): [9.0, 9.0], ("Lifelong", 0, 1): [2.0, 0.0], ("Lifelong", 0, 2): [8.0, 4.0],
        ("Lifelong", 1, 0): [8.0, 8.0], ("Lifelong", 1, 1): [1.0, 3.0], ("Lifelong", 1, 2): [1.0, 3.0],
    }  # fmt: skip
    table = summary.summarise(made_results(made))
    random = line(table, method="Random", trials=2, scope="later")
    # Best of two: 4 and 2, then 6 and 2; over std 2 that is a mean of 1.5 in repetition 0 and 2 in repetition 1.
    assert random["regret"] == 1.75
    assert random["regret_error"] == pytest.approx(0.25)
    assert random["percent"] == 87.5
    assert random["best"] == 3.5
    # Lifelong: 0 and 4, then 1 and 1. Places of Random: 2, 1, 2, 2.
    assert line(table, method="Lifelong", trials=2, scope="later")["regret"] == 0.75
    assert random["rank"] == 1.75
    assert line(table, method="Random", trials=1, scope="first")["rank"] == 1.75
    assert random["seconds_per_ask"] == 0.5
    # Differences of both signs in neither repetition: the smallest p two pairs can give.
    assert random["p"] == 0.5
    assert line(table, method="Lifelong", trials=2, scope="later")["p"] == 1.0


def test_best_so_far_is_the_truth_at_the_best_observation():
    results = made_results({("SGP", 0, 0): [5.0, 3.0, 4.0]})
    results.trials["truth"] = [1.0, 6.0, 2.0]
    assert summary.curves(results, [1, 2, 3])["best"].tolist() == [1.0, 6.0, 6.0]


def test_a_method_that_makes_fewer_trials_has_a_flat_curve():
    results = made_results({("SGP", 0, 0): [5.0, 3.0, 4.0], ("Previous", 0, 0): [4.5]})
    curve = summary.curves(results, [1, 2, 3])
    assert curve[curve["method"] == "Previous"]["best"].tolist() == [4.5] * 3


def test_live_regret_is_measured_by_all_trials_ever_made_of_the_task():
    results = made_results(
        {("SGP", 0, 0): [5.0, 3.0], ("Random", 1, 0): [2.0, 6.0]}, minimum=np.nan, std=np.nan, spread=np.nan
    )
    results.trials["truth"] = np.nan
    curve = summary.curves(results, [2]).set_index("method")
    assert curve.loc["SGP", "percent"] == 25.0
    assert curve.loc["Random", "percent"] == 0.0


def test_normalised_auc_is_relative_to_random_search_task_by_task():
    results = made_results(
        {("Random", 0, 0): [0.5], ("Random", 0, 1): [0.2], ("SGP", 0, 0): [0.4], ("SGP", 0, 1): [0.2]}
    )
    table = summary.normalised_auc(results, [1]).set_index("method")
    assert table.loc["Random", "gain"] == 0
    assert table.loc["SGP", "gain"] == pytest.approx((0.6 / 0.5 - 1) / 2)


# --- figures and pages ---


def test_figures_are_written_and_name_every_method(tmp_path):
    plan = small(tmp_path, "Random", "SGP", "Previous")
    runner.run(plan)
    read = summary.read(plan.out)
    drawn = figures.branin(read) | figures.each_sequence(read) | figures.by_task(read, 5) | figures.runtime(read)
    pages = figures.write(tmp_path / "figures", drawn)
    assert {page.stem for page in pages} >= {"branin-a-minimum", "branin-b-regret", "runtime-accumulated"}
    for page in pages:
        text = page.read_text()
        assert all(name in text for name in ("Random", "SGP", "Previous"))
        assert "https://cdn" not in text
    assert (tmp_path / "figures" / "plotly.min.js").is_file()


@pytest.mark.skipif(figures.browser() is None, reason="no Chromium")
def test_a_picture_is_taken_of_a_figure(tmp_path):
    [page] = figures.write(tmp_path, {"map": figures.heat_map(np.eye(3))})
    assert figures.to_png(page, figures.browser()).read_bytes().startswith(b"\x89PNG")


def test_the_heat_map_is_a_correlation_times_a_gate_for_each_function_and_network(tmp_path):
    from lbo.experiments import heatmap

    plan = replace(small(tmp_path, trials=6), methods=(TINY,))
    runner.run(plan)
    correlation = heatmap.correlations(plan.units()[0])
    assert correlation.shape == (2, 3)
    assert (np.abs(correlation) <= 1).all()
    assert correlation.any()


@pytest.mark.parametrize(("sequences", "shown"), [(2, {"s0", "s1"}), (7, {"all"})])
def test_a_brief_table_has_few_sequences_and_later_tasks_only(sequences, shown):
    names = [*(f"s{i}" for i in range(sequences)), "all"]
    table = pd.DataFrame({"sequence": np.repeat(names, 2), "scope": ["later", "first"] * len(names)})
    brief = summary.brief(table)
    assert set(brief["sequence"]) == shown
    assert set(brief["scope"]) == {"later"}


def test_tables_reach_the_docs_between_their_marks_only(tmp_path):
    (tmp_path / "runs" / "branin").mkdir(parents=True)
    (tmp_path / "runs" / "branin" / "summary.md").write_text("| new |\n")
    page = "before\n<!-- table: branin/summary.md -->\n| old |\n<!-- end -->\n<!-- table: none.md -->\n<!-- end -->\n"
    results.keep(tmp_path / "runs", tmp_path / "results")
    filled = results.filled(page, tmp_path / "results")
    assert "| new |" in filled
    assert "| old |" not in filled
    assert filled.startswith("before\n")
    assert results.NOT_RUN in filled
    assert results.filled(filled, tmp_path / "results") == filled


def test_kept_trials_come_back_as_they_were_and_spare_what_is_there(tmp_path):
    runs, kept, tables = tmp_path / "runs", tmp_path / "results", tmp_path / "cohort-tables"
    written = {runs / "branin" / "units" / "s" / "SGP" / "0-ab.csv": "0,0,1.5\n", tables / "flchain.csv": "0.25\n"}
    for path, text in written.items():
        path.parent.mkdir(parents=True)
        path.write_text(text)
    archives = results.pack_all(runs, kept, tables)
    packed = [archive.read_bytes() for archive in archives]
    os.utime(tables / "flchain.csv", (0, 0))
    assert [archive.read_bytes() for archive in results.pack_all(runs, kept, tables)] == packed

    shutil.rmtree(runs)
    (tables / "flchain.csv").write_text("newer")
    results.restore(kept, runs, tables)
    assert {path: path.read_text() for path in written} == written | {tables / "flchain.csv": "newer"}


def test_pictures_of_a_page_are_the_newest_figures(tmp_path):
    figures, images, page = tmp_path / "results" / "runtime" / "figures", tmp_path / "images", tmp_path / "page.md"
    figures.mkdir(parents=True)
    images.mkdir()
    (figures / "each.png").write_bytes(b"new")
    (images / "each.png").write_bytes(b"old")
    (images / "other.png").write_bytes(b"other")
    page.write_text("![time](images/each.png) ![something else](images/other.png)")
    results.illustrate(page, tmp_path / "results")
    assert {path.name: path.read_bytes() for path in images.iterdir()} == {"each.png": b"new", "other.png": b"other"}


# --- scoreboard ---


def test_a_method_is_left_out_everywhere_or_of_one_group(tmp_path):
    def left(group):
        plan = scoreboard.GROUPS[group].plan(1, tmp_path, 0, False, scoreboard._left_out(group, ["Paper", "oboe/DNGO"]))
        return {method.name for method in plan.methods}

    assert "DNGO" in left("branin")
    assert {"Paper", "DNGO"}.isdisjoint(left("oboe"))
    assert "Paper" not in left("branin")


def board(default, rival, name="branin-0.01"):
    """Results of a default and a rival whose curves are flat at the given values, two tasks, two repetitions."""
    flat = {("Lifelong", r, t): [default] * 20 for r in (0, 1) for t in (0, 1)}
    flat |= {("SGP", r, t): [rival] * 20 for r in (0, 1) for t in (0, 1)}
    return made_results(flat, sequence=name, std=1.0)


@pytest.mark.parametrize(("default", "passes"), [(0.4, True), (0.5, True), (0.51, False), (2.0, False)])
def test_the_scoreboard_passes_at_half_the_regret_of_the_rival_and_fails_above(tmp_path, default, passes, capsys):
    checks = list(scoreboard.at_most(board(default, 1.0), ["branin-0.01"], ["SGP", "DNGO"], 0.5, (10, 20, 50)))
    assert [check.passed for check in checks] == [passes] * 2  # nobody made fifty trials
    assert scoreboard.report(checks, tmp_path) == (0 if passes else 1)
    assert ("FAIL" in (tmp_path / "scoreboard.md").read_text()) == (not passes)
    assert ("FAIL" in capsys.readouterr().out) == (not passes)


@pytest.mark.parametrize(("late", "told", "passes"), [
    (10, "0 later", True), (12, "2 later", True), (13, "3 later", False), (99, "not reached", False),
])  # fmt: skip
def test_how_many_trials_later_a_rivals_regret_is_reached(late, told, passes):
    falling = [1.0 if n < late else 0.1 for n in range(1, 21)]
    rival = [1.0] * 9 + [0.1] * 11
    curves = {(m, 0, t): curve for m, curve in (("Lifelong", falling), ("SGP", rival)) for t in (0, 1)}
    results = made_results(curves, sequence="misled", std=1.0)
    [check] = scoreboard.at_most_later(results, ["misled"], "SGP", 10, 2)
    assert (check.measured, check.passed) == (told, passes)


def test_one_line_that_falls_short_fails_the_scoreboard(tmp_path, capsys):
    good, bad = (scoreboard.Check("x", "y", "z", "w", passed) for passed in (True, False))
    assert scoreboard.report([good, bad], tmp_path) == 1
    assert scoreboard.report([good, good], tmp_path) == 0


def test_regrets_that_no_one_could_tell_from_zero_are_equal():
    [check] = scoreboard.at_most(board(9e-5, 1e-9), ["branin-0.01"], ["SGP"], 1.05, [10])
    assert check.passed


def test_the_best_mean_rank_must_be_the_defaults():
    assert [c.passed for c in scoreboard.best_of_all(board(1.0, 2.0), "x", "rank", ["SGP"], [10])] == [True]
    assert [c.passed for c in scoreboard.best_of_all(board(2.0, 1.0), "x", "rank", ["SGP"], [10])] == [False]


def test_a_tenth_of_the_time_is_asked_for():
    results = board(1.0, 1.0)
    for factor, passes in ((0.05, True), (0.2, False)):
        results.seconds["seconds"] = np.where(results.seconds["method"] == "Lifelong", factor, 1.0)
        [check] = scoreboard.tenth_of_the_time(results, ["branin-0.01"], "SGP")
        assert check.passed == passes


def test_every_group_of_the_scoreboard_has_the_default_and_only_known_methods():
    for group in scoreboard.GROUPS.values():
        assert "Lifelong" in group.methods
        assert set(group.methods) <= set(METHODS)


def test_the_scoreboard_runs_a_group_and_says_so(tmp_path, monkeypatch):
    group = scoreboard.Group(
        "made", lambda: [SyntheticSequence("first")], ("SGP", "TPE", "Lifelong"), scoreboard._first_checks, trials=10
    )
    monkeypatch.setitem(scoreboard.GROUPS, "made", group)
    code = scoreboard.play(["made"], 1, 1, tmp_path, 0, quick=False)
    text = (tmp_path / "scoreboard.md").read_text()
    assert "| first | SGP, TPE | regret @10 at most 1.05 x |" in text
    assert code == int("FAIL" in text)


# --- the command ---


@pytest.mark.parametrize("experiment", ["branin", "textbook"])
def test_the_command_runs_and_writes_everything(tmp_path, experiment):
    from typer.testing import CliRunner

    from lbo.experiments.command import reproduce

    arguments = [experiment, "--quick", "--methods", "Random,SGP", "--trials", "6", "--out", str(tmp_path), "--no-png"]
    result = CliRunner().invoke(reproduce, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"trials.csv", "seconds.csv", "tasks.csv", "summary.csv",
                                                          "summary.md", "brief.md", "figures"}  # fmt: skip
    assert "| SGP |" in (tmp_path / "summary.md").read_text()


def test_an_unknown_method_is_refused_by_name():
    with pytest.raises(methods.UnknownMethod, match=r"A method is one of Random, .* but Magic was asked for"):
        methods.pick(["SGP", "Magic"])


def test_a_users_own_file_is_a_stream_of_windows(tmp_path):
    rng = np.random.default_rng(0)
    year = np.repeat(np.arange(2000, 2006), 40)
    risk = rng.random(len(year))
    frame = pd.DataFrame({"admitted": year, "days": np.where(rng.random(len(year)) < risk, 100, 2000),
                          "died": 1, "risk": risk, "noise": rng.random(len(year))})  # fmt: skip
    file = tmp_path / "clinic.csv"
    frame.to_csv(file, index=False)
    source = sequences.cohort_file(file, "admitted", "days", "died", 365.0, None)
    [overlap2, *_] = sequences.survival("live", [source])
    assert overlap2.name == "live-clinic-2"
    plan = runner.Plan((overlap2,), methods.pick(["Random"]), 1, 2, 0, tmp_path / "out")
    runner.run(plan)
    assert all(0.0 < float(row["value"]) < 1.0 for row in rows_of(plan))
    frame.assign(risk=risk[::-1]).to_csv(file, index=False)
    again = sequences.cohort_file(file, "admitted", "days", "died", 365.0, None)
    assert sequences.settings(sequences.survival("live", [again])[0]) != sequences.settings(overlap2)


def test_rows_are_drawn_without_replacement_and_a_longer_draw_begins_with_the_shorter():
    rows = Rows(made_tables()[0])
    assert len(set(rows.draw(Seed(0), 30))) == 30
    assert rows.draw(Seed(0), 30)[:5] == rows.draw(Seed(0), 5)
