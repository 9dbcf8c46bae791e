"""Run the `burnish` command in an empty directory."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from burnish.adapters.serving.prepare import prepare
from burnish.cli import main
from burnish.config import Settings


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


@pytest.fixture
def state(tmp_path: Path, run: Run) -> Path:
    """The state directory `.burnish` of a server that has started once, in the directory of `run`."""
    folder = tmp_path / ".burnish"
    prepare(Settings(state_dir=folder)).close()
    return folder


@contextmanager
def listening(status: int, *answers: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """The port of a gateway that gives these answers, the last one again and again, and what it was sent: path, key and
    body.
    """
    sent: list[tuple[str, str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            sent.append((self.path, self.headers["authorization"], body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answers[min(len(sent), len(answers)) - 1]).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield str(server.server_address[1]), sent
        server.shutdown()
