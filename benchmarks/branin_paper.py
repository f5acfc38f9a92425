"""The paper's model on one Branin function, beside random search: median regret over seeds.

    python benchmarks/branin_paper.py --seeds 10

Regret is best so far minus the minimum, in units of the function (std of the function: 51).
"""

import argparse
import time

import numpy as np
import optuna
from optuna.samplers import BaseSampler, RandomSampler

import lbo
from lbo.experiments.branin import Branin

MARKS = (10, 20, 30, 50)


def regrets(sampler: BaseSampler, n_trials: int) -> np.ndarray:
    """Regret after each trial."""
    branin = Branin()
    study = optuna.create_study(sampler=sampler)
    study.optimize(branin.objective, n_trials=n_trials)
    values = np.array([trial.value for trial in study.trials])
    return np.minimum.accumulate(values) - branin.minimum.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = {
        "Paper": lambda seed: lbo.LBOSampler(model=lbo.models.Paper(), seed=seed),
        "Random": lambda seed: RandomSampler(seed=seed),
    }
    print(f"{'median regret':<14}" + "".join(f"{f'@{mark}':>10}" for mark in MARKS) + f"{'worst @50':>12}{'s/run':>8}")
    for name, make in samplers.items():
        start = time.perf_counter()
        curves = np.array([regrets(make(seed), MARKS[-1]) for seed in seeds])
        seconds = (time.perf_counter() - start) / len(seeds)
        medians = "".join(f"{np.median(curves[:, mark - 1]):>10.4f}" for mark in MARKS)
        print(f"{name:<14}{medians}{curves[:, -1].max():>12.4f}{seconds:>8.1f}")


if __name__ == "__main__":
    main()
