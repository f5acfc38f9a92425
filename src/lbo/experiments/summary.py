"""From trials to numbers: best so far, regret, ranks, paired tests and time.

best     the truth at the best value that a method was told so far; where the truth is unknown, that value
regret   (best - minimum) / std of the function            percent  100 (best - minimum) / (its range)
A repetition's number is the mean over its tasks; the tables give mean and standard error over repetitions. "later" is
over the tasks from the second on, where there is something to remember, "first" over the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lbo.experiments import data_package
from lbo.experiments.methods import DEFAULT

if TYPE_CHECKING:
    import pandas as pd

    from lbo.experiments.cohorts import Window

BUDGETS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 50, 100, 200)
SHOWN = (1, 3, 5, 10, 20, 50, 200)  # of them, in Markdown
MANY = 6  # sequences, of which a brief table shows only all together
TASK = ["sequence", "repetition", "task"]
MEASURES = ("regret", "percent", "best")


class Results(NamedTuple):
    """The merged files of a run."""

    trials: pd.DataFrame
    seconds: pd.DataFrame
    tasks: pd.DataFrame


def read(out: Path) -> Results:
    """What `runner.run` wrote."""
    read_csv = data_package("pandas").read_csv
    return Results(*(read_csv(out / f"{name}.csv") for name in Results._fields))


def curves(results: Results, budgets: Iterable[int] = BUDGETS) -> pd.DataFrame:
    """One row per task, method and budget: sequence, repetition, task, method, trials, and the measures."""
    pandas = data_package("pandas")
    made = results.trials.groupby(["method", *TASK], sort=False)
    longest = int(results.trials["trial"].max()) + 1
    wanted = [n for n in budgets if n <= longest]
    best = pandas.DataFrame(
        [(*key, n, value) for key, rows in made for n, value in zip(wanted, _best_at(rows, wanted), strict=True)],
        columns=["method", *TASK, "trials", "best"],
    )
    scaled = best.merge(_known_scales(results), on=TASK)
    above = scaled["best"] - scaled["minimum"]
    return scaled.assign(regret=above / scaled["std"], percent=100 * above / scaled["spread"])


def _best_at(rows: pd.DataFrame, budgets: Sequence[int]) -> list[float]:
    """`best` after each number of trials; flat where a method made fewer."""
    values = rows["value"].to_numpy()
    truths = rows["truth"].fillna(rows["value"]).to_numpy()
    return [float(truths[np.argmin(values[:n])]) for n in budgets]


def _known_scales(results: Results) -> pd.DataFrame:
    """Each task's minimum, std and spread; of live models, whose own are unknown, from all trials ever made of them."""
    by_task = results.trials.groupby(["sequence", "task"])["value"]
    seen = by_task.agg(minimum="min", std="std", spread=np.ptp).reset_index()
    tasks = results.tasks.merge(seen, on=["sequence", "task"], suffixes=("", "_seen"))
    filled = {name: tasks[name].fillna(tasks[f"{name}_seen"]) for name in ("minimum", "std", "spread")}
    return tasks.assign(**filled)[[*TASK, "minimum", "std", "spread"]]


def ranks(curve: pd.DataFrame) -> pd.Series:
    """The method's place among all methods on the same task with the same budget, ties sharing theirs."""
    # Below this, differences of the best values are rounding.
    rounded = curve["regret"].round(12)
    return rounded.groupby([curve[column] for column in (*TASK, "trials")]).rank()


def summarise(results: Results, budgets: Iterable[int] = BUDGETS) -> pd.DataFrame:
    """One row per sequence ("all" for all), scope (first, later), method and budget."""
    pandas = data_package("pandas")
    curve = curves(results, budgets)
    curve = curve.assign(rank=ranks(curve), scope=_scope(curve["task"]))
    keys = ["sequence", "scope", "method", "trials"]
    repetitions = curve.groupby([*keys, "repetition"], sort=False)[[*MEASURES, "rank"]].mean().reset_index()
    if curve["sequence"].nunique() > 1:
        together = repetitions.assign(sequence="all", repetition=_pair(repetitions))
        repetitions = pandas.concat([repetitions, together])
    groups = repetitions.groupby(["sequence", "scope", "trials"], sort=False)
    lines = [line for key, rows in groups for line in _lines(key, rows)]
    table = pandas.DataFrame(lines).merge(_seconds(results), on=["sequence", "scope", "method"], how="left")
    return _in_order(table, list(results.trials["method"].unique()))


def _scope(task: pd.Series) -> Any:
    return np.where(task > 0, "later", "first")


def _pair(repetitions: pd.DataFrame) -> pd.Series:
    """What a repetition is called when sequences are thrown together."""
    return repetitions["sequence"] + "/" + repetitions["repetition"].astype(str)


def _lines(key: tuple[str, str, int], rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The methods' numbers for one sequence, scope and budget; rows are repetitions."""
    by_method = {method: part.set_index("repetition") for method, part in rows.groupby("method", sort=False)}
    default = by_method.get(DEFAULT, rows.iloc[:0])["regret"]
    for method, part in by_method.items():
        numbers: dict[str, Any] = {"sequence": key[0], "scope": key[1], "method": method, "trials": key[2]}
        for measure in MEASURES:
            numbers[measure], numbers[f"{measure}_error"] = mean_and_error(part[measure])
        yield numbers | {"rank": part["rank"].mean(), "p": paired_p(part["regret"], default)}


def _in_order(table: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """By sequence ("all" last), scope, method and budget."""
    names = [name for name in table["sequence"].unique() if name != "all"]
    places = [table["sequence"].map([*names, "all"].index), table["scope"].map(["later", "first"].index),
              table["method"].map(methods.index), table["trials"]]  # fmt: skip
    return table.iloc[np.lexsort(places[::-1])].reset_index(drop=True)


def by_repetition(rows: pd.DataFrame, measure: str) -> pd.Series:
    """The mean over the tasks of each repetition."""
    return rows.groupby("repetition", sort=True)[measure].mean()


def mean_and_error(numbers: pd.Series) -> tuple[float, float]:
    """Mean and standard error of the mean, NaN for a single number."""
    return float(numbers.mean()), float(numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else np.nan


def paired_p(numbers: pd.Series, others: pd.Series) -> float:
    """Wilcoxon's two-sided signed-rank test over the repetitions that both have; NaN without two of them."""
    from scipy.stats import wilcoxon  # half a second that `lbo --help` need not spend

    both = numbers.index.intersection(others.index)
    if len(both) < 2:
        return float("nan")
    difference = numbers[both].to_numpy() - others[both].to_numpy()
    return float(wilcoxon(difference).pvalue) if np.any(difference) else 1.0


def _seconds(results: Results) -> pd.DataFrame:
    """Mean time of an ask, drawn points aside, by sequence, scope and method."""
    pandas = data_package("pandas")
    asks = results.seconds[results.seconds["seconds"] > 0]
    asks = asks.assign(scope=_scope(asks["task"]))
    both = pandas.concat([asks, asks.assign(sequence="all")])
    mean = both.groupby(["sequence", "scope", "method"], sort=False)["seconds"].mean()
    return mean.rename("seconds_per_ask").reset_index()


def normalised_auc(results: Results, budgets: Iterable[int] = BUDGETS) -> pd.DataFrame:
    """(AUC - random search's) / random search's, as in the paper, mean and error over repetitions, by sequence."""
    pandas = data_package("pandas")
    curve = curves(results, budgets)
    curve = curve.assign(auc=1 - curve["best"])
    random = curve[curve["method"] == "Random"][[*TASK, "trials", "auc"]]
    paired = curve.merge(random, on=[*TASK, "trials"], suffixes=("", "_random"))
    paired = paired.assign(gain=paired["auc"] / paired["auc_random"] - 1)
    lines = []
    for (sequence, method, trials), rows in paired.groupby(["sequence", "method", "trials"], sort=False):
        gain, error = mean_and_error(by_repetition(rows, "gain"))
        auc, auc_error = mean_and_error(by_repetition(rows, "auc"))
        lines.append({"sequence": sequence, "method": method, "trials": trials, "gain": gain, "gain_error": error,
                      "auc": auc, "auc_error": auc_error})  # fmt: skip
    return pandas.DataFrame(lines)


# Markdown


def markdown(table: pd.DataFrame, measure: str = "regret", shown: Sequence[int] = SHOWN) -> str:
    """A table per sequence and scope: methods down, budgets across."""
    groups = table.groupby(["sequence", "scope"], sort=False)
    return "\n\n".join(_block(f"{key[0]}, {key[1]} tasks", rows, measure, shown) for key, rows in groups) + "\n"


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """What fits on a page: tasks after the first, and of many sequences only all together."""
    later = table[table["scope"] == "later"]
    single = later["sequence"] != "all"
    few = later.loc[single, "sequence"].nunique() <= MANY
    return later[single] if few else later[~single]


def _block(title: str, rows: pd.DataFrame, measure: str, shown: Sequence[int]) -> str:
    present = set(rows["trials"])
    budgets = [n for n in shown if n in present]
    lines = [f"**{title}**: {measure}, mean ± standard error (mean rank)", ""]
    lines += ["| method | " + " | ".join(f"@{n}" for n in budgets) + f" | p @{budgets[-1]} | s per ask |"]
    lines += ["|---|" + "---|" * (len(budgets) + 2)]
    for method, of_method in rows.groupby("method", sort=False):
        at = of_method.set_index("trials")
        cells = [_cell(at.loc[n], measure) for n in budgets]
        last = at.loc[budgets[-1]]
        lines.append(f"| {method} | {' | '.join(cells)} | {_short(last['p'])} | {_short(last['seconds_per_ask'])} |")
    return "\n".join(lines)


def _cell(line: pd.Series, measure: str) -> str:
    return f"{_short(line[measure])} ± {_short(line[f'{measure}_error'])} ({line['rank']:.1f})"


def _short(number: float) -> str:
    return "" if np.isnan(number) else f"{number:.2g}"


def write_normalised(out: Path, results: Results, trials: int) -> None:
    """normalised.csv at every budget, and normalised.md after some trials."""
    table = normalised_auc(results)
    table.to_csv(out / "normalised.csv", index=False, float_format="%.6g", lineterminator="\n")
    at = normalised_auc(results, [trials])
    cells = [f"{100 * gain:+.2f} ± {100 * error:.2f}" for gain, error in at[["gain", "gain_error"]].to_numpy()]
    wide = at.assign(cell=cells).pivot(index="sequence", columns="method", values="cell")[list(at["method"].unique())]
    lines = [f"100 (AUC - random search's) / random search's after {trials} trials, mean ± standard error", ""]
    lines += ["| sequence | " + " | ".join(wide.columns) + " |", "|---|" + "---|" * len(wide.columns)]
    lines += [f"| {name} | {' | '.join(row)} |" for name, row in zip(wide.index, wide.to_numpy(), strict=True)]
    (out / "normalised.md").write_text("\n".join(lines) + "\n")


def windows_markdown(windows: Mapping[int, Sequence[Window]]) -> str:
    """The paper's table of windows: overlaps down."""
    most = max(len(row) for row in windows.values())
    lines = ["| overlap |" + " |" * most, "|---|" + "---|" * most]
    for overlap, row in windows.items():
        cells = [f"{w.name}: {len(w.y)} / {w.y.sum()}" for w in row] + [""] * (most - len(row))
        lines.append(f"| {overlap} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(out: Path, measure: str = "regret") -> pd.DataFrame:
    """summary.csv and summary.md of a run."""
    table = summarise(read(out))
    table.to_csv(out / "summary.csv", index=False, float_format="%.6g", lineterminator="\n")
    (out / "summary.md").write_text(markdown(table, measure))
    (out / "brief.md").write_text(markdown(brief(table), measure))
    return table
