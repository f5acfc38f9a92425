"""A stream of a thousand tasks: what an ask takes, what memory and process weigh, as the number of tasks grows.

    python benchmarks/growth.py                     SQLite and PostgreSQL, up to 1,000 tasks, a model that costs nothing
    python benchmarks/growth.py --model default     the default model, whose consolidations take seconds each

Tasks of 20 trials are put into the storage directly; everything measured is done by lbo, in processes of their own:
the first ask of a new task (it lists the tasks and folds the previous one in), the first ask of a process that resumes
the task, later asks, the memory's bytes and the resident size. Writes results/growth.json and results/growth.svg.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

RESULTS = ROOT / "results"
SIZES = {"cheap": (2, 10, 100, 300, 1000), "default": (2, 10, 30)}
TRIALS = 20
LATER = 10  # asks after the first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="cheap")
    parser.add_argument("--storage", choices=["sqlite", "postgresql"], action="append")
    parser.add_argument("--tasks", type=int, nargs="*", help="how many tasks; several, in ascending order")
    parser.add_argument("--measure", nargs=2, metavar=("URL", "TASK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure, arguments.model)))
        return
    from postgres import Postgres

    results = json.loads((RESULTS / "growth.json").read_text()) if (RESULTS / "growth.json").exists() else {}
    for storage in arguments.storage or ["sqlite", "postgresql"]:
        with tempfile.TemporaryDirectory(prefix="lbo-pg-") as work, ExitStack() as stack:
            if storage == "sqlite":
                url = f"sqlite:///{work}/lbo.db"
            else:
                url = stack.enter_context(Postgres(work)).create_database("growth")
            rows = list(grow(url, arguments.tasks or SIZES[arguments.model], arguments.model))
        results[f"{arguments.model} model on {storage}"] = rows
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "growth.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "growth.svg").write_text(plot(results))


def grow(url, sizes, model):
    """Measurements at each size."""
    from lbo import Stream

    stream = Stream("s", url)
    stream._direction("t1", "minimize")  # puts up the shelf
    for size, last in zip(sizes, (0, *sizes), strict=False):
        start = time.perf_counter()
        fill(stream, range(last + 1, size - 1))
        filled = time.perf_counter() - start
        in_a_new_process(url, size - 1, model)  # folds in whatever the last size lacks
        folded = time.perf_counter() - start - filled
        new = in_a_new_process(url, size, model)
        resumed = in_a_new_process(url, size, model)
        row = {
            "tasks": size,
            **both("first ask of a new task", new["first"]),
            **both("first ask of a process", resumed["first"]),
            **both("later ask", resumed["later"]),
            "memory, bytes": resumed["bytes"],
            "resident, MB": resumed["resident"],
        }
        print(f"{size:5d} tasks  {row}  (filled in {filled:.0f} s, folded in {folded:.0f} s)", flush=True)
        yield row


def both(what, seconds):
    return {f"{what}, s": seconds[0], f"{what}, CPU s": seconds[1]}


def in_a_new_process(url, size, model):
    command = [sys.executable, __file__, "--model", model, "--measure", url, f"t{size}"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(url, task, model):
    import optuna
    import psutil

    import lbo
    from cheap import Cheap
    from lbo.models import default_model
    from lbo.storage import open_storage

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    chosen = Cheap(width=10) if model == "cheap" else default_model()
    storage = open_storage(url)  # opening a database is Optuna's time, the same for every stream
    start = clock()
    stream = lbo.Stream("s", storage)
    study = stream.study(task, seed=0, model=chosen)
    ask(study)
    first = clock() - start
    later = []
    for _ in range(LATER):
        start = clock()
        ask(study)
        later.append(clock() - start)
    memory = stream.memory_for(study)
    return {
        "first": first.round(4).tolist(),
        "later": np.median(later, axis=0).round(4).tolist(),
        "bytes": memory.nbytes if memory else 0,
        "resident": round(psutil.Process().memory_info().rss / 2**20, 1),
    }


def clock():
    """Seconds on the wall, and of this process's CPU: the second is what a busy machine does not change."""
    return np.array([time.perf_counter(), time.process_time()])


def ask(study):
    trial = study.ask()
    value = sum(trial.suggest_float(f"x{i}", 0, 1) for i in range(8)) + (
        trial.suggest_categorical("c", ["p", "q"]) == "p"
    )
    study.tell(trial, value)


def fill(stream, numbers):
    """Tasks with all their trials, as many rows at a time as the database takes."""
    for n in numbers:
        create(stream, f"t{n}", position=n)
    insert(stream, numbers)


def create(stream, task, position):
    """What `Stream.study` writes of a new task, without looking at those before it."""
    from optuna.study import StudyDirection

    study_id = stream.storage.create_new_study([StudyDirection.MINIMIZE], f"s/{task}")
    tag = {"stream": "s", "task": task, "position": position}
    stream.storage.set_study_system_attr(study_id, "lbo:task", tag)


def insert(stream, numbers):
    from optuna.distributions import CategoricalDistribution, FloatDistribution, distribution_to_json
    from optuna.storages._rdb import models
    from optuna.trial import TrialState
    from sqlalchemy import func, insert, select

    unit = distribution_to_json(FloatDistribution(0, 1))
    choice = distribution_to_json(CategoricalDistribution(["p", "q"]))
    now = datetime.now()
    with stream.storage._backend.engine.begin() as connection:
        ids = dict(connection.execute(select(models.StudyModel.study_name, models.StudyModel.study_id)).all())
        trial_id = connection.execute(select(func.max(models.TrialModel.trial_id))).scalar() or 0
        trials, params, values = [], [], []
        for n in numbers:
            rng = random.Random(n)
            for number in range(TRIALS):
                trial_id += 1
                x = [rng.random() for _ in range(8)]
                c = rng.randrange(2)
                trials.append(
                    {"trial_id": trial_id, "number": number, "study_id": ids[f"s/t{n}"], "state": TrialState.COMPLETE,
                     "datetime_start": now, "datetime_complete": now + timedelta(seconds=1)}
                )  # fmt: skip
                for name, value, distribution in [*((f"x{i}", v, unit) for i, v in enumerate(x)), ("c", c, choice)]:
                    params.append(
                        {"trial_id": trial_id, "param_name": name, "param_value": value,
                         "distribution_json": distribution}
                    )  # fmt: skip
                values.append(
                    {"trial_id": trial_id, "objective": 0, "value": sum(x) + (c == 0),
                     "value_type": models.TrialValueModel.TrialValueType.FINITE}
                )  # fmt: skip
        for model, rows in (
            (models.TrialModel, trials),
            (models.TrialParamModel, params),
            (models.TrialValueModel, values),
        ):
            if rows:
                connection.execute(insert(model.__table__), rows)
        if connection.dialect.name == "postgresql" and trials:  # which counts on its own
            connection.exec_driver_sql(f"select setval('trials_trial_id_seq', {trial_id})")


# A plot without a plotting package: small enough to keep in the tree, and every browser draws it.

PANELS = {
    "ask, CPU seconds": ["first ask of a new task, CPU s", "first ask of a process, CPU s", "later ask, CPU s"],
    "memory, kB": ["memory, bytes"],
    "resident size, MB": ["resident, MB"],
}
COLOURS = ("#c0392b", "#2471a3", "#229954", "#7d3c98", "#b7950b", "#566573")
WIDTH, HEIGHT, MARGIN = 330, 230, 50


def plot(results):
    panels = [panel(i, title, names, results) for i, (title, names) in enumerate(PANELS.items())]
    legend = [
        f'<text x="{MARGIN + 10}" y="{HEIGHT + 95 + 16 * i}" fill="{COLOURS[i % len(COLOURS)]}">{name}</text>'
        for i, name in enumerate(series(results, PANELS["ask, CPU seconds"]))
    ]
    height = HEIGHT + 100 + 16 * len(legend)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * (WIDTH + MARGIN) + 20}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(panels)}{''.join(legend)}</svg>\n"
    )


def series(results, names):
    """Lines of a panel: name -> [(tasks, value)]."""
    return {
        f"{name.rpartition(',')[0]}: {run}": [(row["tasks"], row[name]) for row in rows]
        for run, rows in results.items()
        for name in names
    }


def panel(i, title, names, results):
    import math

    lines = series(results, names)
    scale = 1 / 1000 if "kB" in title else 1
    top = max(value * scale for points in lines.values() for _, value in points) * 1.1 or 1.0
    last = max(tasks for points in lines.values() for tasks, _ in points)
    left, bottom = MARGIN + i * (WIDTH + MARGIN), HEIGHT + 40

    def at(tasks, value):
        x = left + WIDTH * 0.95 * math.log(tasks / 2) / math.log(max(last / 2, 1.01))
        return f"{x:.1f},{bottom - HEIGHT * value * scale / top:.1f}"

    drawn = [f'<text x="{left}" y="25" font-weight="bold">{title}</text>',
             f'<path d="M{left},40V{bottom}H{left + WIDTH}" fill="none" stroke="black"/>']  # fmt: skip
    for value in (0, top / 2, top):
        y = bottom - HEIGHT * value / top
        drawn.append(f'<text x="{left - 4}" y="{y:.1f}" text-anchor="end">{value:.3g}</text>')
    for tasks in sorted({tasks for points in lines.values() for tasks, _ in points}):
        x = at(tasks, 0).split(",")[0]
        drawn.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{tasks}</text>')
    drawn.append(f'<text x="{left + WIDTH / 2}" y="{bottom + 32}" text-anchor="middle">tasks</text>')
    colours = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(lines)} if i == 0 else {}
    for k, (name, points) in enumerate(lines.items()):
        colour = colours.get(name, COLOURS[3 * k % len(COLOURS)])
        path = " ".join(at(*point) for point in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "".join(drawn)


if __name__ == "__main__":
    main()
