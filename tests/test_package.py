"""What `import lbo` gives, costs and leaves alone."""

import json
import subprocess
import sys
from types import ModuleType

import lbo

CONTRACT = {"LBOSampler", "LifelongSearchCV", "Memory", "Stream", "models", "spaces"}
HEAVY = {"jax", "pandas", "plotly", "pyarrow", "rich", "sklearn", "skops", "torch", "typer", "xgboost"}


def in_a_new_process(code: str):
    """Run code in a fresh interpreter and return the JSON that it prints."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_all_names_exist_and_are_listed_once() -> None:
    assert len(lbo.__all__) == len(set(lbo.__all__))
    assert set(lbo.__all__) >= CONTRACT
    assert set(dir(lbo)) >= set(lbo.__all__)
    for name in lbo.__all__:
        assert getattr(lbo, name) is not None


def test_all_lists_every_public_name() -> None:
    # Submodules become attributes once anything imports them; the other two are the interpreter's, not ours.
    not_api = {"annotations", "TYPE_CHECKING"}
    public = {name for name, value in vars(lbo).items() if not isinstance(value, ModuleType)}
    assert {name for name in public if not name.startswith("_")} - not_api <= set(lbo.__all__)


def test_import_leaves_heavy_packages_alone() -> None:
    imported = in_a_new_process(
        "import optuna, sys, json; before = set(sys.modules); import lbo; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    assert "lbo" in imported
    assert not HEAVY & set(imported)


def test_import_costs_little_more_than_optuna() -> None:
    """A tenth of a second, or half of Optuna's own import on a slow machine.

    Processor time, the best of five: a busy machine stretches wall time threefold, and this hardly at all.
    """
    code = """
import json, time
start = time.process_time()
import optuna
middle = time.process_time()
import lbo
print(json.dumps([middle - start, time.process_time() - middle]))
"""
    optuna_seconds, lbo_seconds = map(min, zip(*(in_a_new_process(code) for _ in range(5)), strict=True))
    assert lbo_seconds < max(0.1, optuna_seconds / 2)


def test_tuning_with_the_default_model_imports_no_scipy() -> None:
    """Which would take a third of a new process's time up to its first suggestion."""
    imported = in_a_new_process("""
import json, sys
import lbo, optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
stream = lbo.Stream("s", storage=optuna.storages.InMemoryStorage())
for task in ("a", "b"):
    study = stream.study(task, seed=0)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 2, n_trials=7)
print(json.dumps(sorted(name for name in sys.modules if name.startswith("scipy"))))
""")
    assert imported == []


# What a library may be tempted to set. SciPy's parts come first: each adds a warnings filter of its own.
SNAPSHOT = """
import json, logging, os, random, signal, sys, threading, warnings
import numpy as np, optuna, scipy.linalg, scipy.optimize, scipy.special, scipy.stats, threadpoolctl

def snapshot():
    return {
        "numpy's random state": repr(np.random.get_state(legacy=False)),
        "random's state": hash(random.getstate()),
        "numpy's error handling": np.geterr(),
        "numpy's print options": repr(np.get_printoptions()),
        "warnings filters": repr(warnings.filters),
        "root logger": repr((logging.root.handlers, logging.root.level)),
        "optuna's logger": repr((logging.getLogger("optuna").handlers, optuna.logging.get_verbosity())),
        "environment": dict(os.environ),
        "thread pools": [(pool["filepath"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()],
        "signal handlers": repr([signal.getsignal(s) for s in sorted(signal.valid_signals())]),
        "hooks": repr((sys.excepthook, sys.displayhook, threading.excepthook)),
        "threads": threading.active_count(),
    }

before = snapshot()
%s
after = snapshot()
print(json.dumps([name for name in before if before[name] != after[name]]))
"""


def test_import_changes_no_global_state() -> None:
    assert in_a_new_process(SNAPSHOT % "import lbo") == []


def test_the_snapshot_sees_what_it_watches() -> None:
    """The control: each of these is a change that the test above must not miss."""
    changes = (
        "np.random.seed(0); warnings.simplefilter('ignore'); logging.basicConfig(); os.environ['LBO'] = '1'; "
        "threadpoolctl.threadpool_limits(1); random.seed(1)"
    )
    changed = in_a_new_process(SNAPSHOT % changes)
    assert set(changed) >= {
        "numpy's random state",
        "random's state",
        "warnings filters",
        "root logger",
        "environment",
        "thread pools",
    }
