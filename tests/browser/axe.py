"""axe-core (Deque, MPL-2.0), which finds what keeps people with a screen reader or a keyboard out of a page.

It is fetched from npm's registry at first, by its version, into `.work/`.
"""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Page

VERSION = "4.14.1"
_FOLDER = Path(__file__).resolve().parents[2] / ".work" / "axe"
SERIOUS = ("serious", "critical")


def script() -> str:
    """The program's text."""
    file = _FOLDER / f"axe-{VERSION}.js"
    if not file.exists():
        if shutil.which("npm") is None:
            pytest.fail("these tests need npm (Debian: apt-get install npm) to fetch axe-core")
        _FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", f"axe-core@{VERSION}", "--silent"]
        done = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"`{' '.join(command)}` failed:\n{done.stderr[-2000:]}")
        with tarfile.open(_FOLDER / done.stdout.split()[-1]) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            file.write_bytes(member.read())
    return file.read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """The serious violations of the page that is open: rule, why, and where."""
    await page.call("Runtime.evaluate", expression=script())
    run = "axe.run(document, {resultTypes: ['violations']}).then(found => JSON.stringify(found.violations))"
    answer = await page.call("Runtime.evaluate", expression=run, awaitPromise=True, returnByValue=True)
    found: list[dict[str, Any]] = json.loads(answer["result"]["value"])
    return [
        f"{each['id']}: {each['help']}: {node['html'][:160]}"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]
