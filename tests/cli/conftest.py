"""Run the `burnish` command in an empty directory."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from burnish.cli import main


@dataclass(frozen=True)
class Done:
    """A command's output and exit status."""

    status: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `burnish ...` in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    # It would bind the loggers of this whole session to a stream that ends with this test.
    monkeypatch.setattr("burnish.logs.configure", lambda *_: None)
    for name in [name for name in os.environ if name.startswith("BURNISH_")]:
        monkeypatch.delenv(name)

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["burnish", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
            raise SystemExit(0)
        printed = capsys.readouterr()
        return Done(int(ended.value.code or 0), printed.out, printed.err)

    return call
