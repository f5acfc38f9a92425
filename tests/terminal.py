"""The command `lbo` as tests run it: in a process of its own or, where only its output matters, in this one."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from lbo.cli import app

WIDE = {"COLUMNS": "150", "NO_COLOR": "1"}
INSTALLED = Path(sys.executable).with_name("lbo")
COMMAND = [str(INSTALLED)] if INSTALLED.exists() else [sys.executable, "-c", "from lbo.cli import main; main()"]


def command(*arguments, cwd):
    """The finished process."""
    environment = {**os.environ, **WIDE}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env=environment)


def invoke(*arguments, exit_code=0):
    """What is printed; errors that the command would print are raised."""
    result = CliRunner(env=WIDE).invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return result.output
