"""The default model against every rival: what it must reach, what was measured, pass or fail.

    python -m lbo.experiments.scoreboard [--quick]

A group of rows shares one run of the runner, so a killed scoreboard goes on where it stopped, and where `lbo reproduce`
with the same settings has been: they use the same folders. Numbers are means over
the tasks from the second on, unless a row says otherwise. Two rules stand behind every comparison: a regret below
RESOLUTION (of the function's deviation) counts as RESOLUTION, and "no worse" allows NO_WORSE times the rival's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from lbo.experiments import DataError, branin, cohorts, methods, runner, sequences, summary, synthetic, textbook
from lbo.experiments.methods import DEFAULT, GAUSSIAN, RIVALS, STANDARD
from lbo.experiments.sequences import BraninSequence, PublicCohort, SyntheticSequence, TableSequence, TaskSequence
from lbo.experiments.summary import Results
from lbo.models.lifelong import OPENINGS

if TYPE_CHECKING:
    import pandas as pd

RESOLUTION = 1e-4
NO_WORSE = 1.05
CONFORMING = (0.01, 0.05, 0.1)
ALONE = ("SGP", "GPSampler", "TPE")
SINGLE_TASK_FACTOR = 4  # repetitions where one task counts, to have as many tasks as where four do
QUICK_REPEATS, QUICK_TRIALS, QUICK_METHODS = 2, 20, ("Random", "SGP", "WinnersSGP", "TPE", DEFAULT)

console = Console()
Tasks = Callable[["pd.Series"], "pd.Series"]  # which tasks count


@dataclass(frozen=True)
class Check:
    """One line of the scoreboard."""

    on: str
    against: str
    target: str
    measured: str
    passed: bool


@dataclass(frozen=True)
class Group:
    """Rows that share a run."""

    name: str
    sequences: Callable[[], Sequence[TaskSequence]]
    methods: tuple[str, ...]
    checks: Callable[[Results], Iterator[Check]]
    trials: int = 50
    factor: float = 1.0  # of the repetitions
    quick: bool = True  # part of the quick scoreboard

    def plan(self, repeats: int, out: Path, seed: int, quick: bool, without: Sequence[str] = ()) -> runner.Plan:
        able = [name for name in self.methods if name not in (*methods.missing(self.methods), *without)]
        able = [name for name in able if name in QUICK_METHODS] if quick else able
        trials = min(self.trials, QUICK_TRIALS) if quick else self.trials
        count = max(1, round(self.factor * (QUICK_REPEATS if quick else repeats)))
        folder = out / "quick" / self.name if quick else out / self.name
        return runner.Plan(tuple(self.sequences()), methods.pick(able), count, trials, seed, folder)


# Numbers


def means(results: Results, trials: int, measure: str = "regret", tasks: Tasks | None = None) -> pd.DataFrame:
    """Mean of a measure after some trials: sequences down, methods across."""
    curve = summary.curves(results, [trials])
    curve = curve.assign(rank=summary.ranks(curve))
    chosen = curve[(tasks or _later)(curve["task"])]
    return chosen.pivot_table(index="sequence", columns="method", values=measure, sort=False)


def _later(task: pd.Series) -> pd.Series:
    return task > 0


def _last(task: pd.Series) -> pd.Series:
    return task == task.max()


def _first(task: pd.Series) -> pd.Series:
    return task == 0


def _budgets(results: Results, wanted: Iterable[int]) -> list[int]:
    longest = int(results.trials["trial"].max()) + 1
    return [n for n in wanted if n <= longest]


def _known(table: pd.DataFrame, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in table.columns]


# Kinds of check


def at_most(
    results: Results, names: Iterable[str], rivals: Sequence[str], factor: float, budgets: Iterable[int],
    tasks: Tasks | None = None,
) -> Iterator[Check]:  # fmt: skip
    """Regret at most `factor` times the best rival's, sequence by sequence."""
    for n in _budgets(results, budgets):
        table = means(results, n, tasks=tasks).clip(lower=RESOLUTION)
        present = _known(table, rivals)
        for name in names if present else ():
            row = table.loc[name]
            best = row[present].idxmin()
            ratio = row[DEFAULT] / row[best]
            measured = f"{ratio:.2f} x ({row[DEFAULT]:.2g} / {row[best]:.2g} of {best})"
            yield Check(name, ", ".join(present), f"regret @{n} at most {factor:g} x", measured, ratio <= factor)


def at_most_later(
    results: Results, names: Iterable[str], rival: str, trials: int, later: int, tasks: Tasks | None = None
) -> Iterator[Check]:
    """How many trials later the rival's regret after some trials is reached: what a past that misleads costs."""
    longest = int(results.trials["trial"].max()) + 1
    if longest < trials:
        return
    curve = summary.curves(results, range(trials, longest + 1))
    chosen = curve[(tasks or _later)(curve["task"])]
    regret = chosen.pivot_table(index=["sequence", "trials"], columns="method", values="regret").clip(lower=RESOLUTION)
    for name in names if rival in regret else ():
        falling, goal = regret.loc[name, DEFAULT], regret.loc[(name, trials), rival]
        reached = falling.index[falling <= NO_WORSE * goal]
        late = int(reached[0]) - trials if len(reached) else None
        measured = "not reached" if late is None else f"{late} later"
        passed = late is not None and late <= later
        yield Check(name, rival, f"its regret @{trials} at most {later} trials later", measured, passed)


def tenth_of_the_time(results: Results, names: Iterable[str], rival: str) -> Iterator[Check]:
    """Seconds of the last task."""
    seconds = results.seconds[_last(results.seconds["task"])]
    total = seconds.groupby(["sequence", "method"])["seconds"].sum().unstack()
    for name in names if rival in total else ():
        ratio = total.loc[name, DEFAULT] / total.loc[name, rival]
        yield Check(name, rival, "a tenth of its time at the last task", f"{ratio:.3f} x", ratio <= 0.1)


def best_of_all(
    results: Results, on: str, measure: str, rivals: Sequence[str], budgets: Iterable[int]
) -> Iterator[Check]:
    """The smallest mean of all methods, over all sequences together."""
    for n in _budgets(results, budgets):
        mean = means(results, n, measure).mean()
        best = mean[_known(mean.to_frame().T, rivals)].idxmin()
        measured = f"{mean[DEFAULT]:.3g} against {mean[best]:.3g} of {best}"
        yield Check(on, "every rival", f"best mean {measure} @{n}", measured, mean[DEFAULT] <= mean[best])


def ahead_of_random(results: Results, on: str, rivals: Sequence[str], trials: int) -> Iterator[Check]:
    """The largest normalised AUC after some trials."""
    for n in _budgets(results, [trials]):
        table = summary.normalised_auc(results, [n])
        gain = table.groupby("method")["gain"].mean()
        best = gain[_known(gain.to_frame().T, rivals)].idxmax()
        measured = f"{gain[DEFAULT]:.4f} against {gain[best]:.4f} of {best}"
        yield Check(on, "every rival", f"most ahead of random @{n}", measured, gain[DEFAULT] >= gain[best])


def improves_with_tasks(results: Results, names: Iterable[str], trials: int) -> Iterator[Check]:
    """Less regret in the second half of the tasks than in the first; their order is random."""
    half = int(results.tasks["task"].max() + 1) / 2
    early = means(results, trials, tasks=lambda task: task < half)[DEFAULT]
    late = means(results, trials, tasks=lambda task: task >= half)[DEFAULT]
    for name in names:
        measured = f"{late[name]:.3g} after {early[name]:.3g}"
        yield Check(name, "itself", f"regret @{trials} falls with tasks seen", measured, late[name] < early[name])


def reopens_the_family(results: Results, trials: int) -> Iterator[Check]:
    """The third A of A B A B A is found as fast as the third A of A A A."""
    for n in _budgets(results, [trials]):
        table = means(results, n, tasks=lambda task: task == 4).clip(lower=RESOLUTION)
        pure = means(results, n, tasks=lambda task: task == 2).clip(lower=RESOLUTION)
        mixed, alone = table.loc["alternating", DEFAULT], pure.loc["family", DEFAULT]
        measured = f"{mixed / alone:.2f} x ({mixed:.2g} / {alone:.2g})"
        yield Check(
            "alternating A B A B A", "family A A A", f"third A @{n} no worse", measured, mixed <= NO_WORSE * alone
        )


# Groups


def _branin_checks(results: Results) -> Iterator[Check]:
    related = [BraninSequence(sigma).name for sigma in CONFORMING]
    strange = [BraninSequence(sigma).name for sigma in branin.SIGMAS if sigma not in CONFORMING]
    learners = ("Random", "SGP", "DNGO", "ABLR-50", "ABLR-100", "Paper")
    yield from at_most(results, related, learners, 0.5, (10, 20))
    yield from at_most(results, related, ["MTGP"], NO_WORSE, (10, 20, 50))
    yield from tenth_of_the_time(results, related, "MTGP")
    yield from at_most(results, strange, ["SGP"], NO_WORSE, (10, 20, 50))


def _stranger_checks(results: Results) -> Iterator[Check]:
    yield from at_most(results, ["strangers", "noisy"], ["SGP"], NO_WORSE, (10, 20, 50))
    yield from reopens_the_family(results, 10)


def _misled_checks(results: Results) -> Iterator[Check]:
    yield from at_most(results, synthetic.MISLEADING, ["SGP"], NO_WORSE, (10, 20, 50), _last)
    yield from at_most_later(results, synthetic.MISLEADING, "SGP", 10, OPENINGS, _last)


def _textbook_checks(results: Results) -> Iterator[Check]:
    names = [sequence.name for sequence in sequences.textbooks(textbook.NEAR)]
    yield from at_most(results, names, ["Random", "SGP"], 0.5, (10, 20))
    yield from at_most(results, names, ["WinnersSGP", "MTGP"], NO_WORSE, (10, 20, 50))


def _far_checks(results: Results) -> Iterator[Check]:
    names = [sequence.name for sequence in sequences.textbooks(textbook.FAR)]
    yield from at_most(results, names, ["SGP"], NO_WORSE, (10, 20, 50))


def _first_checks(results: Results) -> Iterator[Check]:
    yield from at_most(results, results.tasks["sequence"].unique(), ALONE, NO_WORSE, (10, 20, 50), _first)


def _survival_checks(on: str) -> Callable[[Results], Iterator[Check]]:
    def checks(results: Results) -> Iterator[Check]:
        yield from best_of_all(results, on, "rank", RIVALS, (5, 10, 25, 50))
        yield from ahead_of_random(results, on, RIVALS, 50)

    return checks


def _xgboost_checks(results: Results) -> Iterator[Check]:
    for measure in ("regret", "rank"):
        yield from best_of_all(results, "xgboost table", measure, RIVALS, (7, 10, 25, 50))


def _table_checks(name: str) -> Callable[[Results], Iterator[Check]]:
    def checks(results: Results) -> Iterator[Check]:
        yield from best_of_all(results, name, "rank", RIVALS, (10, 25, 50))
        yield from improves_with_tasks(results, [name], 10)

    return checks


def _cohorts(mode: str) -> Callable[[], list[TaskSequence]]:
    return lambda: sequences.survival(mode, [PublicCohort(name) for name in cohorts.RECIPES])


def _tables(name: str) -> Callable[[], list[TaskSequence]]:
    return lambda: sequences.collections([name])


# Of a hundred tasks in a row, methods whose cost grows with all past trials are not asked, nor is the paper's, which
# would take a day.
LONG = ("Random", "SGP", "WinnersSGP", "Previous", "DNGO", DEFAULT)

_ALL = (
    Group("branin", sequences.branins, STANDARD, _branin_checks),
    Group("strangers", lambda: [SyntheticSequence(n) for n in ("strangers", "noisy", "family", "alternating")],
          ("SGP", DEFAULT), _stranger_checks),
    Group("misleading", lambda: [SyntheticSequence(name) for name in synthetic.MISLEADING], ("SGP", DEFAULT),
          _misled_checks, factor=SINGLE_TASK_FACTOR),
    Group("first", lambda: [SyntheticSequence("first"), BraninSequence(0.1, 1), TableSequence("xgboost", 1)],
          (*ALONE, DEFAULT), _first_checks, factor=SINGLE_TASK_FACTOR),
    Group("textbook", lambda: sequences.textbooks(textbook.NEAR), GAUSSIAN, _textbook_checks, factor=0.5, quick=False),
    Group("textbook-far", lambda: sequences.textbooks(textbook.FAR), ("SGP", DEFAULT), _far_checks, factor=0.5,
          quick=False),
    Group("survival", _cohorts("table"), STANDARD, _survival_checks("survival, table"), quick=False),
    Group("live", _cohorts("live"), STANDARD, _survival_checks("survival, live"), factor=0.2, quick=False),
    Group("xgboost", _tables("xgboost"), STANDARD, _xgboost_checks, quick=False),
    Group("hpobench-mlp", _tables("hpobench-mlp"), STANDARD, _table_checks("hpobench-mlp"), quick=False),
    Group("fcnet", _tables("fcnet"), STANDARD, _table_checks("fcnet"), quick=False),
    Group("oboe", _tables("oboe"), LONG, _table_checks("oboe"), trials=25, quick=False),
)  # fmt: skip
GROUPS: dict[str, Group] = {group.name: group for group in _ALL}
ALL_GROUPS = ",".join(GROUPS)


def play(
    names: Sequence[str], repeats: int, jobs: int, out: Path, seed: int, quick: bool, without: Sequence[str] = ()
) -> int:
    """Run groups, print the scoreboard and write it to out/scoreboard.md; 1 if a line falls short, else 0."""
    checks: list[Check] = []
    for name, _, count in (name.partition(":") for name in names):
        group = GROUPS[name]
        if quick and not group.quick:
            continue
        for absent in methods.missing(group.methods):
            console.print(f"{group.name}: without {absent}, whose package torch is not installed.")
        try:
            plan = group.plan(int(count or repeats), out, seed, quick, _left_out(name, without))
            console.print(f"{group.name}: {len(plan.units())} units")
            runner.run(plan, jobs)
        except DataError as error:
            console.print(f"{group.name}: skipped. {error}")
            continue
        summary.write(plan.out)
        checks += group.checks(summary.read(plan.out))
    return report(checks, out)


def _left_out(group: str, without: Sequence[str]) -> list[str]:
    """The methods that a group does without, METHOD meaning every group and GROUP/METHOD that one."""
    return [entry.removeprefix(f"{group}/") for entry in without]


def report(checks: Sequence[Check], out: Path) -> int:
    """Print and write the lines; 1 if one of them falls short, else 0."""
    table = RichTable("on", "against", "target", "measured", "")
    for check in checks:
        style = None if check.passed else "bold red"
        table.add_row(check.on, check.against, check.target, check.measured, _verdict(check), style=style)
    console.print(table)
    out.mkdir(parents=True, exist_ok=True)
    (out / "scoreboard.md").write_text(markdown(checks))
    return 0 if all(check.passed for check in checks) else 1


def _verdict(check: Check) -> str:
    return "pass" if check.passed else "FAIL"


def markdown(checks: Iterable[Check]) -> str:
    """The scoreboard as a table."""
    lines = ["| on | against | target | measured | |", "|---|---|---|---|---|"]
    lines += [f"| {c.on} | {c.against} | {c.target} | {c.measured} | {_verdict(c)} |" for c in checks]
    return "\n".join(lines) + "\n"


def main(
    groups: Annotated[
        str, typer.Option(help=f"Of {', '.join(GROUPS)}, separated by commas; NAME:3 repeats it thrice.")
    ] = ALL_GROUPS,
    repeats: Annotated[int, typer.Option(min=1)] = 10,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    out: Annotated[Path, typer.Option(help="A killed scoreboard goes on from what is here.")] = Path("runs"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Two short repetitions of the cheap groups.")] = False,
    without: Annotated[
        str, typer.Option(help="Methods to leave out, everywhere (Paper takes longest) or in one group: oboe/DNGO.")
    ] = "",
) -> None:
    """The default model against every rival: target, measured, pass or fail."""
    raise typer.Exit(play(_names(groups), repeats, jobs, out, seed, quick, _names(without)))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    typer.run(main)
