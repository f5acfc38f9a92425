"""Every python block of the README and the docs runs, in order, as a reader would paste it."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```python\b[^\n]*\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)


def python_blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield each block's first line number in the page and its code."""
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, dedent(match[2])


def run_page(page: Path) -> None:
    """Execute a page's blocks in one namespace, with line numbers that are the page's own."""
    namespace = {"__name__": "__main__"}
    for line, code in python_blocks(page.read_text(encoding="utf-8")):
        try:
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
        except Exception as error:
            error.add_note(f"in the python block that begins at {page.name}:{line}")
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_the_readme_shows_a_single_task_and_a_stream() -> None:
    blocks = [code for _, code in python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert any("lbo.LBOSampler(" in code for code in blocks)
    assert any("lbo.Stream(" in code for code in blocks)


def test_a_failing_block_is_reported_at_its_own_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n```python\na = 1\n```\n\n```sh\nnot python\n```\n\n"
        "* indented:\n\n  ```python\n  b = a\n  b / 0\n  ```\n"
    )
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(page)
    assert caught.traceback[-1].lineno + 1 == 15
    assert caught.value.__notes__ == ["in the python block that begins at page.md:14"]
