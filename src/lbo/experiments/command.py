"""`lbo reproduce`: the paper's experiments from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lbo.errors import LboError
from lbo.experiments import (
    ablation,
    cohorts,
    figures,
    heatmap,
    methods,
    runner,
    scoreboard,
    sequences,
    summary,
    textbook,
)
from lbo.experiments.methods import Method
from lbo.experiments.sequences import BraninSequence, CohortSource, PublicCohort, SyntheticSequence, TaskSequence

reproduce = typer.Typer(no_args_is_help=True, help="The paper's experiments: figures, tables, and every trial as CSV.")
console = Console()

QUICK_TRIALS, QUICK_SEQUENCES = 8, 2
RUNTIME_FUNCTIONS, RUNTIME_SIGMA = 15, 0.1
STANDARD, RUNTIME, GAUSSIAN, COHORTS = (
    ",".join(names) for names in (methods.STANDARD, methods.RUNTIME, methods.GAUSSIAN, cohorts.RECIPES)
)
NORMALISED_AT = 50  # trials, as in the paper's main text

Methods = Annotated[str, typer.Option(help="Names, separated by commas.")]
Repeats = Annotated[int, typer.Option(min=1)]
Trials = Annotated[int, typer.Option(min=1, help="Per task.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes.")]
Out = Annotated[Path, typer.Option(help="Results go here; a killed run goes on from what is there.")]
Seed = Annotated[int, typer.Option(min=0)]
Quick = Annotated[
    bool, typer.Option("--quick", help="One short repetition of the first two sequences, to see it work.")
]
Png = Annotated[bool, typer.Option(help="Pictures beside the HTML figures; needs Chromium.")]


@dataclass(frozen=True)
class Settings:
    """The options that all experiments share."""

    methods: str
    repeats: int
    trials: int
    jobs: int
    out: Path
    seed: int
    quick: bool
    png: bool

    def plan(self, over: Sequence[TaskSequence], compared: tuple[Method, ...] | None = None) -> runner.Plan:
        chosen = compared or methods.pick(name.strip() for name in self.methods.split(","))
        plan = runner.Plan(tuple(over), chosen, self.repeats, self.trials, self.seed, self.out)
        if not self.quick:
            return plan
        trials = min(self.trials, QUICK_TRIALS)
        return replace(plan, sequences=plan.sequences[:QUICK_SEQUENCES], repeats=1, trials=trials)


@reproduce.command()
def branin(
    methods: Methods = STANDARD, repeats: Repeats = 10, trials: Trials = 50, jobs: Jobs = 1,
    out: Out = Path("runs/branin"), seed: Seed = 0, quick: Quick = False, png: Png = True,
) -> None:  # fmt: skip
    """Five sequences of five perturbed Branin functions (section 3.1)."""
    settings = Settings(methods, repeats, trials, jobs, out, seed, quick, png)
    plan = settings.plan(sequences.branins())
    results = _run(plan, settings)
    _draw(settings, figures.branin(results) | figures.each_sequence(results) | _heat_map(plan))


def _heat_map(plan: runner.Plan) -> dict[str, Any]:
    """Figure (c), of the first repetition of the most related functions, if the paper's model was run."""
    paper = [unit for unit in plan.units() if unit.method.name == "Paper" and unit.repetition == 0]
    return {"branin-c-networks": figures.heat_map(heatmap.correlations(paper[0]))} if paper else {}


@reproduce.command()
def survival(
    methods: Methods = STANDARD, repeats: Repeats = 10, trials: Trials = 50, jobs: Jobs = 1,
    out: Out = Path("runs/survival"), seed: Seed = 0, quick: Quick = False, png: Png = True,
    mode: Annotated[str, typer.Option(help="table: configurations evaluated once; live: trained anew.")] = "table",
    configurations: Annotated[int, typer.Option(min=4, help="Of a table.")] = sequences.CONFIGURATIONS,
    cohort: Annotated[str, typer.Option(help="Public cohorts, separated by commas.")] = COHORTS,
    data: Annotated[Path | None, typer.Option(help="Your own CSV or Parquet instead, one row per patient.")] = None,
    time: Annotated[str, typer.Option(help="Column of --data: arrival date or year.")] = "time",
    followup: Annotated[str, typer.Option(help="Column of --data: length of follow-up.")] = "followup",
    event: Annotated[str, typer.Option(help="Column of --data: 1 if follow-up ended with the event.")] = "event",
    horizon: Annotated[float, typer.Option(help="Label 1 if the event came by then, in the unit of follow-up.")] = 3.0,
    features: Annotated[str, typer.Option(help="Columns of --data to predict from; all others by default.")] = "",
) -> None:  # fmt: skip
    """Cohorts of patients who arrive over the years, in overlapping windows (section 3.2 and supplement)."""
    if mode not in ("table", "live"):
        raise typer.BadParameter(f"--mode is table or live, but is {mode!r}.")
    settings = Settings(methods, repeats, trials, jobs, out, seed, quick, png)
    columns = [name.strip() for name in features.split(",") if name.strip()]
    sources: list[CohortSource] = [PublicCohort(name.strip()) for name in cohort.split(",")]
    if data is not None:
        sources = [sequences.cohort_file(data, time, followup, event, horizon, columns)]
    plan = settings.plan(sequences.survival(mode, sources, configurations))
    results = _run(plan, settings, measure="percent")
    drawn = figures.each_sequence(results, "percent")
    if "Random" in set(results.trials["method"]):
        budget = min(NORMALISED_AT, plan.trials)
        summary.write_normalised(out, results, budget)
        drawn |= figures.survival(results, budget)
    _write_windows(out, sources)
    _draw(settings, drawn | {f"{s.name}-sizes": figures.sample_sizes(sequences.load_cohort(s)) for s in sources})


def _write_windows(out: Path, sources: Iterable[CohortSource]) -> None:
    loaded = [sequences.load_cohort(source) for source in sources]
    text = [f"**{c.name}**: patients / events\n\n{summary.windows_markdown(sequences.all_windows(c))}" for c in loaded]
    (out / "windows.md").write_text("\n".join(text))


@reproduce.command()
def runtime(
    methods: Methods = RUNTIME, repeats: Repeats = 3, trials: Trials = 20, jobs: Jobs = 1,
    out: Out = Path("runs/runtime"), seed: Seed = 0, quick: Quick = False, png: Png = True,
) -> None:  # fmt: skip
    """Accumulated optimisation time over fifteen functions (supplement), and what a past costs ABLR."""
    settings = Settings(methods, repeats, trials, jobs, out, seed, quick, png)
    results = _run(settings.plan([BraninSequence(RUNTIME_SIGMA, RUNTIME_FUNCTIONS)]), settings)
    _draw(settings, figures.runtime(results))


@reproduce.command(name="textbook")
def textbooks(
    methods: Methods = GAUSSIAN, repeats: Repeats = 5, trials: Trials = 50, jobs: Jobs = 1,
    out: Out = Path("runs/textbook"), seed: Seed = 0, quick: Quick = False, png: Png = True,
    distance: Annotated[float, typer.Option(min=0.0, help="Between optima, in every coordinate of the unit cube.")] =
    textbook.NEAR,
) -> None:  # fmt: skip
    """Textbook functions in four to eight dimensions, and relatives of them."""
    settings = Settings(methods, repeats, trials, jobs, out, seed, quick, png)
    results = _run(settings.plan(sequences.textbooks(distance)), settings)
    _draw(settings, figures.each_sequence(results))


@reproduce.command()
def tables(
    methods: Methods = STANDARD, repeats: Repeats = 10, trials: Trials = 50, jobs: Jobs = 1,
    out: Out = Path("runs/xgboost"), seed: Seed = 0, quick: Quick = False, png: Png = True,
    table: Annotated[str, typer.Option(help=f"Of {', '.join(sequences.TABLES)}, separated by commas.")] = "xgboost",
) -> None:  # fmt: skip
    """Tabulated benchmarks, tasks in random order."""
    settings = Settings(methods, repeats, trials, jobs, out, seed, quick, png)
    results = _run(settings.plan(sequences.collections([name.strip() for name in table.split(",")])), settings)
    shown = min(10, int(results.trials["trial"].max()) + 1)
    _draw(settings, figures.each_sequence(results) | figures.by_task(results, shown))


@reproduce.command(name="ablation")
def ablate(
    repeats: Repeats = 5, trials: Trials = 30, jobs: Jobs = 1, out: Out = Path("runs/ablation"), seed: Seed = 0,
    quick: Quick = False, png: Png = True,
) -> None:  # fmt: skip
    """The default model without each of its parts."""
    settings = Settings("", repeats, trials, jobs, out, seed, quick, png)
    made: list[TaskSequence] = [BraninSequence(0.1), SyntheticSequence("strangers"), SyntheticSequence("noisy")]
    tables = [*sequences.collections(["xgboost"]), sequences.SurvivalTable(sequences.PublicCohort("dataDIVAT1"), 3)]
    results = _run(settings.plan([*made, *tables], ablation.COMPARED), settings)
    _draw(settings, figures.each_sequence(results))


reproduce.command(name="scoreboard")(scoreboard.main)


def _run(plan: runner.Plan, settings: Settings, measure: str = "regret") -> summary.Results:
    _refuse_missing([method.name for method in plan.methods])
    runner.run(plan, settings.jobs)
    summary.write(plan.out, measure)
    console.print(f"Summary: {plan.out / 'summary.md'}")
    return summary.read(plan.out)


def _refuse_missing(names: Sequence[str]) -> None:
    if absent := methods.missing(names):
        raise LboError(f"{', '.join(absent)} needs the package torch, which is not installed. Run: pip install torch")


def _draw(settings: Settings, drawn: dict[str, Any]) -> None:
    pages = figures.write(settings.out / "figures", drawn)
    console.print(f"Figures: {settings.out / 'figures'}")
    chromium = figures.browser() if settings.png else None
    if settings.png and chromium is None:
        console.print("No PNG: no Chromium was found.")
    for page in pages if chromium else ():
        figures.to_png(page, str(chromium))
