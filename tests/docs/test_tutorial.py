"""Every console and Python block of the tutorial runs as it is printed, and prints what the page says."""

import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-run.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "8700"
START_SECONDS = 300.0


@dataclass
class Block:
    """A block of the page: a Python program, or commands with the output that the page shows."""

    language: str
    text: str

    @property
    def commands(self) -> str:
        """The lines behind `$`, with the lines that continue them."""
        lines: list[str] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                lines.append(line[2:])
            elif lines and lines[-1].endswith("\\"):
                lines.append(line)
        return "\n".join(lines)

    @property
    def output(self) -> re.Pattern[str]:
        """The shown output. `…` stands for anything, and a number for any number."""
        shown: list[str] = []
        is_command = False
        for line in self.text.splitlines():
            is_command = line.startswith("$ ") or (is_command and shown == [] and line.startswith("    "))
            if not is_command:
                shown.append(line)
        pattern = re.sub(r"\d+", r"\\d+", re.escape("\n".join(shown)).replace("…", r"[\s\S]*"))
        return re.compile(rf"\s*{pattern}\s*")


def blocks() -> list[Block]:
    return [Block(language, text) for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8"))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Shell:
    """One bash that keeps its variables from command to command."""

    def __init__(self, folder: Path, path: str) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "COLUMNS": "120"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, commands: str) -> str:
        """The output of `commands`; fails if the last of them does."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{commands}\nstatus=$?; echo; echo __status__ $status\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith("__status__"):
                assert line.split() == ["__status__", "0"], f"{commands}\n{''.join(lines)}"
                break
            lines.append(line)
        return "".join(lines).strip("\n")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=30)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A folder with a configuration that changes nothing but the ports."""
    port, engine = free_port(), free_port()
    (tmp_path / "burnish.toml").write_text(f"[gateway]\nport = {port}\n[engine]\nport = {engine}\n", encoding="utf-8")
    yield tmp_path, port


def started(folder: Path, command: str, log: Path) -> "subprocess.Popen[bytes]":
    """`burnish up` in the background, once it has said that it is ready."""
    program, *rest = shlex.split(command)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / program), *rest], cwd=folder, stdout=out, stderr=subprocess.STDOUT
        )
    deadline = time.monotonic() + START_SECONDS
    while "Ready." not in log.read_text(encoding="utf-8"):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.2)
    return process


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_every_block_of_the_tutorial_runs_and_prints_what_it_shows(folder: tuple[Path, int]) -> None:
    home, port = folder
    first, *others = blocks()
    assert first.commands == "burnish up" and len(others) >= 7
    shell = Shell(home, f"{Path(sys.executable).parent}:/usr/bin:/bin")
    up = started(home, first.commands, home / "up.log")
    try:
        for block in others:
            text = block.text.replace(PORT, str(port))
            if block.language == "python":
                (home / "talk.py").write_text(text, encoding="utf-8")
                continue
            block = Block(block.language, text)
            said = shell.run(block.commands)
            assert block.output.fullmatch(said), f"{block.commands}\n{said}\n--- expected ---\n{block.text}"
        assert re.search(r"agent@v[1-9]", shell.run("python talk.py")), "no version went live"
    finally:
        up.send_signal(signal.SIGINT)
        shell.close()
        assert up.wait(timeout=60) in (0, -signal.SIGINT, 130)
