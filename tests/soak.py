"""Every fault in full counts: `python tests/soak.py`. Stop it and start it again: it goes on where it stopped.

Prints one line per experiment and keeps the counts in results/soak.json; `--fresh` starts over.
"""

import argparse
import itertools
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

import optuna

import faults
from postgres import Postgres

RESULTS = Path(__file__).parent.parent / "results" / "soak.json"
RUNS = {"kill": 200, "crowd on sqlite": 10, "crowd on postgresql": 10, "restart": 20, "fuzz": 10}
FLIPS = 100  # per run of fuzz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--only", choices=RUNS, help="one experiment")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    results = {} if arguments.fresh or not RESULTS.exists() else json.loads(RESULTS.read_text())
    with (
        tempfile.TemporaryDirectory() as work,
        tempfile.TemporaryDirectory(prefix="lbo-pg-") as data,
        Postgres(data) as server,
    ):
        for name, runs in RUNS.items():
            if arguments.only in (None, name):
                soak(name, runs, results, _experiment(name, Path(work), server))


def _experiment(name, work, server):
    numbers = itertools.count()
    new_database = lambda: server.create_database(f"{name.split()[0]}{next(numbers)}")  # noqa: E731
    match name:
        case "kill":
            return lambda seed: faults.kill_and_resume(work, seed)
        case "crowd on sqlite":
            return lambda seed: faults.crowd(f"sqlite:///{work}/crowd{seed}.db")
        case "crowd on postgresql":
            return lambda seed: faults.crowd(new_database())
        case "restart":
            return lambda seed: faults.restart(server, new_database(), work, seed)
        case "fuzz":
            return lambda seed: faults.fuzz(work, FLIPS, seed)


def soak(name, runs, results, experiment) -> None:
    result = results.setdefault(name, {"runs": 0, "seconds": 0.0, "seen": {}})
    seen = Counter(result["seen"])
    for seed in range(result["runs"], runs):
        start = time.monotonic()
        for what, value in experiment(seed).items():
            if isinstance(value, str):
                seen[f"{what}: {value}"] += 1
            else:
                seen[what] += value
        result["runs"] = seed + 1
        result["seconds"] = round(result["seconds"] + time.monotonic() - start, 1)
        result["seen"] = dict(sorted(seen.items()))
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{name}: {result['runs']} runs in {result['seconds']:.0f} s, {result['seen']}", flush=True)


if __name__ == "__main__":
    main()
