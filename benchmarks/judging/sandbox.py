"""The check of the sandbox's judge that ships. `python -m benchmarks.judging.sandbox` makes it again, with a vLLM.

The sandbox is for tests and starts fast, so its judge is not checked at the first start. The file names what was
checked by digest. If its model, prompt or golden set changes, it counts no more, and a test says so.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from benchmarks.judging.vllm import running
from burnish.config import Settings
from burnish.judges import permits
from burnish.judges.calibration import golden
from burnish.judges.calibration.check import Checked, check
from burnish.judges.process import make_judge
from burnish.keys import engine_key
from burnish.processes import vllm_server


def measure(folder: Path) -> Checked:
    """The outcome of the check on a vLLM of its own."""
    with running(folder) as settings:
        return asyncio.run(_checked(settings))


async def _checked(settings: Settings) -> Checked:
    judge = make_judge(settings, vllm_server.engine_url(settings), engine_key(settings), "")
    try:
        return await check(judge, golden.load(golden.SHIPPED))
    finally:
        await judge.close()


def text(found: Checked) -> str:
    """The file's content."""
    return json.dumps({"of": permits.sandbox_judge(), "figures": found.figures.to_json()}, indent=2) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    print(f"{found.state} {found.reason}\n{text(found)}")
    if found.state == "fit":
        permits.IN_ADVANCE.write_text(text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
