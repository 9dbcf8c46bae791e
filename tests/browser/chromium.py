"""A headless Chromium, driven over its DevTools protocol: real clicks and keys, what a page shows, and pictures of it.

Debian's `chromium` is installed where it is missing and this is root; otherwise the test fails and says so.
"""

import asyncio
import base64
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

FLAGS = (
    *(
        "--headless=new",
        "--no-first-run",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
    ),
    *("--disable-extensions", "--disable-sync", "--no-default-browser-check", "--hide-scrollbars"),
    *("--window-size=640,480", "--remote-debugging-port=0"),
)
PATIENCE = 30.0
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}


def program() -> str:
    """Chromium's path."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.geteuid() == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]):
            done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.fail(f"`{' '.join(command)}` failed; these tests need Chromium:\n{done.stderr[-2000:]}")
        found = shutil.which("chromium")
    if found is None:
        pytest.fail(
            "these tests need Chromium (Debian: apt-get install chromium); this is not root, it cannot be installed"
        )
    return found


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._n_asked = 0

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until(f"document.readyState === 'complete' && location.href.startsWith({url!r})")

    async def call(self, method: str, **parameters: Any) -> Any:
        """The result of one command; what the browser says on its own is passed over."""
        self._n_asked += 1
        await self._socket.send_json({"id": self._n_asked, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=PATIENCE)
            if answer.get("id") == self._n_asked:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not await self.value(f"!!({expression})"):
            if time.monotonic() > deadline:
                pytest.fail(f"never came true: {expression}\n{await self.value('document.body.innerText')}")
            await asyncio.sleep(0.02)

    async def click(self, selector: str) -> None:
        """A mouse click on the middle of an element."""
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = await self.value(f"[{box}.x + {box}.width / 2, {box}.y + {box}.height / 2]")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str) -> None:
        """One key of the keyboard: Tab, Enter or the space bar."""
        code, text = _KEYS[key]
        known = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **known)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    async def write(self, text: str) -> None:
        """Text into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def told(self) -> list[tuple[str, str]]:
        """What a screen reader is told: roles and names, in the page's order."""
        tree = await self.call("Accessibility.getFullAXTree")
        seen = [node for node in tree["nodes"] if not node["ignored"]]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in seen]

    async def picture(self) -> bytes:
        """A screenshot, as PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """The DevTools port of a browser that keeps its profile in `folder` and ends with the block."""
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()  # Chromium's own sandbox does not work for root
    log_file, port_file = folder / "chromium.log", folder / "profile" / "DevToolsActivePort"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [program(), *FLAGS, *sandbox, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HOME": str(folder)},
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not (port_file.exists() and "\n" in port_file.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail("Chromium did not start:\n" + log_file.read_text(errors="replace")[-2000:])
            time.sleep(0.05)
        yield int(port_file.read_text().splitlines()[0])
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@asynccontextmanager
async def tab(port: int) -> AsyncIterator[Page]:
    """The first tab of the browser whose DevTools listen on `port`."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            targets = await answer.json()
        address = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
        async with session.ws_connect(address, max_msg_size=0) as socket:
            yield Page(socket)
