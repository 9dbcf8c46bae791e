"""Parts of Burnish as `burnish up` starts them: processes of their own, on free ports."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnish.adapters.serving.prepare import ui_key_file
from burnish.config import Engine, Gateway, Settings, to_environment
from tests.browser.chromium import Page
from tests.e2e.whole import free_port

NOBODY = "http://127.0.0.1:9"


def settings_in(folder: Path, engine: str = NOBODY, key: str = "none") -> Settings:
    """Settings with free ports and their state in `folder`."""
    urls: dict[str, Any] = {"engine": Engine(urls=(engine,), api_key=key)}
    return Settings(state_dir=folder, gateway=Gateway(port=free_port(), ui_port=free_port()), **urls)


@contextmanager
def running(settings: Settings, *names: str) -> Iterator[dict[str, int]]:
    """The gateway, the pages and the parts `names`. Gives their pids."""
    environment = {**os.environ, **to_environment(settings)}
    command = [sys.executable, "-m", "burnish", "run"]
    log = (settings.state_dir / "parts.log").open("wb")
    started = {
        name: subprocess.Popen([*command, name], env=environment, stdout=log, stderr=log)
        for name in ("gateway", "ui", *names)
    }
    try:
        for port in (settings.gateway.port, settings.gateway.ui_port):
            _wait(f"http://127.0.0.1:{port}/healthz")
        yield {name: process.pid for name, process in started.items()}
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            process.wait(40)
        log.close()


def peak_memory(pid: int) -> float:
    """The most memory that a process has had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def origin_of(settings: Settings) -> str:
    """Where the pages are."""
    return f"http://127.0.0.1:{settings.gateway.ui_port}"


async def sign_in(page: Page, settings: Settings) -> None:
    """Sign in with the pages' own key, which may do what an operator may, talk, and give feedback."""
    await page.open(f"{origin_of(settings)}/login")
    await page.value("document.querySelector('#key').focus()")
    await page.write(ui_key_file(settings).read_text(encoding="utf-8").strip())
    await page.press("Enter")
    await page.until("location.pathname.endsWith('/overview')")


def _wait(url: str) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
