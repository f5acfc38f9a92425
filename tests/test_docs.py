"""Numbers that are typed in the docs are those of the code."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from lbo import advice, memory, plot, report, sampler, shelf, stream
from lbo.consolidate import BEST_KEPT
from lbo.experiments import calibration
from lbo.models import Lifelong, Paper, component, families, gp, lifelong, paper

DOCS = Path(__file__).resolve().parent.parent / "docs"
MODEL = Lifelong()
WORDS = {
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    7: "seven",
    8: "eight",
    10: "ten",
    20: "twenty",
    30: "thirty",
    50: "fifty",
    1000: "a thousand",
}
FRACTIONS = {0.01: "one percent", 0.05: "five percent", 0.1: "a tenth", 0.2: "a fifth", 0.5: "half"}
RHO_CHOSEN = ", ".join(str(int(gp.N_INITIAL * paper.RHO_GROWTH**i)) for i in range(3))
N_HYPER = len({*families.HYPER, "log_width"})

STATED = {
    "how-it-works.md": [
        f"kept at a few points, at most {MODEL.points}:",
        f"The most promising {WORDS[lifelong.FINALISTS - 1]} and",
        f"less than {FRACTIONS[round(float(np.exp(lifelong.NEGLIGIBLE)), 6)]} of the weight",
        f"at odds of {FRACTIONS[lifelong.DOUBT]}, times what the trials say for it",
        f"length scales {FRACTIONS[lifelong.DOUBT_SCALE]} as long",
        f"one task in {WORDS[round(1 / lifelong.UPSIDE_DOWN)]} of those that lean on it",
        f'While the task has fewer than {WORDS[sampler.YOUNG]} trials and "nobody" has more than '
        f"{sampler.STRANGE * 100:.0f} % of the weight",
        f"the fixed one counting as {WORDS[int(lifelong.DEFAULTS_WORTH)]} of them",
        f"learned anew each time a task has grown by {FRACTIONS[round(lifelong.GROWTH - 1, 6)]}",
        f"Failures of past tasks count {FRACTIONS[lifelong.FAIL_FAITH]}",
        f"In a first task, {WORDS[MODEL.n_initial(None)]} random trials come first",
        f"{WORDS[lifelong.OPENINGS].capitalize()} winners and no more",
        f"for every {WORDS[lifelong.PACE]} trials of a task, one algorithm at least has been tried",
        f"There are at most {WORDS[MODEL.functions - 1]} families",
        f"at most {WORDS[MODEL.functions]} functions of at most {MODEL.points} points",
        f"up to {families.FAILURES_KEPT} places of failures",
        f"{WORDS[N_HYPER]} hyper-parameters, the {WORDS[BEST_KEPT]} best configurations",
        f"a fit uses at most {component.LARGEST_FIT} trials: the best half",
    ],
    "memory-format.md": [
        f"chunks* of at most {shelf.CHUNK:,} characters",
        f"| `format` | {memory.FORMAT} |",
        f"| `format` | {memory.FORMAT}, the number of this format |",
        f"Of the last {WORDS[stream.LOOK_BACK]} tasks",
        f"(at most {families.FAILURES_KEPT}, D)",
        f"def largest(D, M={MODEL.functions}, J={MODEL.points}, failures={families.FAILURES_KEPT}):",
        f"the {WORDS[BEST_KEPT]} best configurations with their values",
    ],
    "report-and-advice.md": [
        f"on the newest {WORDS[report.ADVISED]} tasks",
        f"It shows the newest {WORDS[report.LAST]}",
        f"with {advice.CONFIDENCE * 100:.0f} % probability, keeping",
        f"it is {FRACTIONS[advice.SMALL]} of how far",
        f"draws {WORDS[advice.DRAWS]} functions",
        f"after {', '.join(map(str, calibration.AFTER[:-1]))} and {calibration.AFTER[-1]} trials",
        f"hold in {calibration.AIM * 100:.0f} % of the cases",
    ],
    "the-paper.md": [
        f"the defaults: {Paper().networks}, {Paper().units} and {Paper().steps}",
        f"{Paper().steps} (`steps`), at a rate of {paper.RATE:g}",
        f"starts afresh, with {paper.RESTART_STEPS} steps",
        f"{ {4: 'four'}[paper.RHO_FOLDS] } folds of the task's trials, {paper.RHO_STEPS} steps each, at {RHO_CHOSEN}",
    ],
}


@pytest.mark.parametrize(("page", "sentence"), [(page, s) for page, stated in STATED.items() for s in stated])
def test_the_docs_state_what_the_code_does(page, sentence):
    assert sentence in re.sub(r"\s+", " ", (DOCS / page).read_text(encoding="utf-8"))


def test_a_report_shows_as_many_tasks_as_its_pictures():
    assert report.LAST == plot.LAST == plot.DERIVED


def test_pictures_of_the_docs_can_be_drawn(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    pictures.main()
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (DOCS / "images").glob("*.svg")}
    assert all(ElementTree.parse(tmp_path / name).getroot().tag.endswith("svg") for name in drawn)
