"""What a measurement ran on, and the two clocks that it is taken with."""

from __future__ import annotations

import os
import platform
import signal
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from threadpoolctl import threadpool_info

# For processes that measure: samplers shall differ in work and not in cores.
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
ENDED = -signal.SIGPROF  # what a process returns that `end_after` ended
PACKAGES = ("lbo", "optuna", "numpy", "scipy", "torch", "gpytorch", "botorch", "smac", "ConfigSpace", "cmaes")


class Seconds(NamedTuple):
    """On the wall, and of this process's processors: the second is what a busy machine changes least."""

    wall: float
    cpu: float

    def since(self, start: Seconds) -> Seconds:
        """What passed between another time and this one."""
        return Seconds(self.wall - start.wall, self.cpu - start.cpu)


def now() -> Seconds:
    """The time on both clocks."""
    return Seconds(time.perf_counter(), time.process_time())


def median(measured: Sequence[Seconds]) -> Seconds:
    """Of each clock on its own."""
    return Seconds(*np.median(measured, axis=0).tolist())


def mean(measured: Sequence[Seconds]) -> Seconds:
    """Of each clock on its own."""
    return Seconds(*np.mean(measured, axis=0).tolist())


def describe() -> dict[str, Any]:
    """The machine, what runs on it, and how busy it is."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory, GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "BLAS": sorted({_blas(library) for library in threadpool_info() if library["user_api"] == "blas"}),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "load": round(os.getloadavg()[0], 1),
    }


def sentence(machine: dict[str, Any]) -> str:
    """The description as a line under a table."""
    packages = ", ".join(f"{name} {found}" for name, found in machine["packages"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory, GB']} GB, Python {machine['python']}, "
        f"{', '.join(machine['BLAS'])}; {packages}; load average {machine['load']} at the start."
    )


def _processor() -> str:
    """The model as Linux names it; elsewhere what Python knows."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _blas(library: dict[str, Any]) -> str:
    return f"{library['internal_api']} {library['version']} ({library.get('architecture', 'unknown')})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def end_after(seconds: float) -> None:
    """End this process, whatever it is in the middle of, once it has used the processor for so long from now on."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def quiet() -> None:
    """No word of Optuna's about trials, nor about arguments that are experimental."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
