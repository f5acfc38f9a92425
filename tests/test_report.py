"""The report in a real browser: every chart is drawn, names are text, and nothing of the user's data is in it."""

import re
import subprocess
import sys

import numpy as np
import pytest

from lbo import history, report
from lbo.errors import CannotWrite, MissingExtra
from lbo.experiments.figures import browser
from lbo.models import SGP, Paper
from past_streams import MODELS, SQUARE, grid_trials, stream_of, trial

EVIL = ["<script>document.title='run'</script>", "</script><script>document.title='run'</script>",
        "<img src=x onerror=document.title='run'>", "\"'&<b>$name ${x}"]  # fmt: skip


def bowl(x, y):
    return (x - 0.3) ** 2 + (y - 0.7) ** 2


def evil_stream():
    distributions = {name: MODELS["slope"] for name in EVIL}
    tasks = {
        task: [trial(bowl(x, y), dict.fromkeys(EVIL, x), distributions) for x in (0.1, 0.6) for y in (0.2, 0.8)]
        for task in EVIL
    }
    return stream_of(tasks, name=EVIL[0].replace("/", ""))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report.write(evil_stream(), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def opened(page, tmp_path_factory):
    """The page as Chromium has it after everything ran, and what it wrote to its console."""
    chromium = browser()
    if chromium is None:
        pytest.skip("no Chromium is installed")
    profile = tmp_path_factory.mktemp("profile")
    result = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={profile}", "--virtual-time-budget=10000", "--enable-logging=stderr", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


def without_plotly(html):
    """The page but for plotly's own script."""
    scripts = re.findall(r"<script[^>]*>.*?</script>", html, flags=re.DOTALL)
    return html.replace(max(scripts, key=len), "")


def test_every_chart_is_drawn(opened):
    dom, _ = opened
    for chart in report.CHARTS:
        section = dom.split(f'id="{chart.id}"')[1].split("</section>")[0]
        assert 'class="main-svg"' in section, chart.id
        assert re.search(r"<(path|rect|image)[^>]*(class=\"(point|js-line|hm)|d=\"M|href=\"data:)", section), chart.id
    assert dom.count('class="plotly-graph-div js-plotly-plot"') == len(report.CHARTS)


def test_the_console_stays_empty(opened):
    assert opened[1] == []


def test_names_are_text_and_nothing_in_them_runs(opened, page):
    dom, _ = opened
    name = EVIL[0].replace("/", "")
    escaped = name.replace("<", "&lt;").replace(">", "&gt;")
    assert re.search(r"<title>(.*?)</title>", dom)[1] == f"{escaped}: lbo report"
    assert f"<h1>{escaped}</h1>" in dom
    assert "<img src" not in without_plotly(dom)
    source = without_plotly(page.read_text(encoding="utf-8"))
    assert not any(evil in source for evil in EVIL[:3])
    assert len(re.findall(r"<script", source)) == source.count("</script>") == len(report.CHARTS) + 1


def test_it_needs_no_network_and_fits_a_phone(page):
    source = without_plotly(page.read_text(encoding="utf-8"))
    assert not re.search(r"(src|href)\s*=\s*[\"']?\s*(https?:|//)", source)
    assert "default-src 'none'" in source
    assert '<meta name="viewport"' in source
    assert "@media print" in source
    assert source.count('role="img" aria-label="') == len(report.CHARTS)


def test_tables_hold_every_task_and_its_advice():
    stream = stream_of({"jan": grid_trials(bowl), "feb": [trial(0.25), trial(None)], "mar": []}, direction="maximize")
    html = without_plotly(report.render(stream))
    tasks = html.split("Every task, oldest first")[1].split("</section>")[0]
    cells = [re.sub("<[^>]*>", "|", row) for row in re.findall("<tr>(.*?)</tr>", tasks)[1:]]
    assert [[cell for cell in row.split("|") if cell][:5] for row in cells] == [
        ["jan", "16", "0", f"{bowl(0.875, 0.125):.4g}", "13"],
        ["feb", "2", "1", "0.25", "1"],
        ["mar", "0", "0", "-", "-"],
    ]
    for task in ("jan", "feb", "mar"):
        assert str(stream.advice(task).reason).replace("'", "&#x27;") in html


def test_the_report_of_a_long_stream_says_what_it_leaves_out(monkeypatch):
    stream = stream_of({f"t{n}": grid_trials(bowl, side=2) for n in range(report.LAST + 2)})
    stream.rebuild()
    for task in ("newest", "after it"):  # whose memories are stored
        stream.study(task, seed=0).ask(SQUARE)
    folded = []
    monkeypatch.setattr(history, "fold", lambda *args, fold=history.fold: folded.append(args[2]) or fold(*args))
    html = without_plotly(report.render(stream))
    assert len(folded) == report.LAST
    assert "This stream has 34 tasks" in html
    assert "The newest 30 tasks, oldest first" in html
    assert "There is advice on the newest 2 tasks." in html
    for task in ("newest", "after it"):
        assert str(stream.advice(task).reason).replace("'", "&#x27;") in html


def test_a_long_stream_of_another_model_has_no_advice():
    stream = stream_of({f"t{n}": grid_trials(bowl, side=2) for n in range(report.LAST + 1)})
    stream.rebuild(SGP())
    html = without_plotly(report.render(stream))
    assert "There is advice on no task." in html
    assert "as if the stream had begun" not in html


def test_advice_is_on_the_newest_tasks():
    stream = stream_of({f"t{n}": grid_trials(bowl, side=2) for n in range(report.ADVISED + 1)})
    html = without_plotly(report.render(stream))
    assert f"There is advice on the newest {report.ADVISED} tasks." in html
    assert "This stream has" not in html


def test_it_is_written_into_a_folder_that_is_not_there_yet_but_not_over_one(tmp_path):
    stream = stream_of({})
    assert stream.report(tmp_path / "new" / "report.html").is_file()
    with pytest.raises(CannotWrite, match="Name another place"):
        stream.report(tmp_path)


def test_any_stream_can_be_reported(tmp_path):
    young = stream_of({"only": [trial(1.0)]})
    paper = stream_of({task: grid_trials(bowl, side=2) for task in "ab"})
    paper.rebuild(Paper(networks=3, units=4, steps=2))
    for stream in (stream_of({}), young, paper):
        html = stream.report(tmp_path / "report.html").read_text(encoding="utf-8")
        assert all(f'id="plot-{chart.id}"' in html for chart in report.CHARTS)


def test_no_row_of_the_data_is_in_it(tmp_path):
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    from lbo.sklearn import LifelongSearchCV

    stream = stream_of({})
    X = np.arange(40.0).reshape(20, 2) + 98765.4321
    for task in "ab":
        LifelongSearchCV(
            LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, stream=stream.name, task=task, storage=stream.storage,
            n_iter=3, cv=2, random_state=0, refit=False,
        ).fit(X, np.tile([0, 1], 10))  # fmt: skip
    text = without_plotly(stream.report(tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "C = 0.1" in text or "C = 1" in text
    assert not re.search(r"987\d\d\.|98\.\d+k", text)


def test_without_plotly_the_extra_is_named(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingExtra, match=r"lbo\[plot\]"):
        report.render(stream_of({}))
