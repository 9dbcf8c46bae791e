"""vLLM's API server on a CPU, started faster: `python -m burnish.processes.vllm_on_cpu`, with vLLM's flags.

vLLM's scheduler and worker are a process beside the API server. On a GPU it is a fork. On a CPU vLLM starts a new
Python, which imports everything again, because a fork has none of OpenMP's threads. But the API server computes
nothing before, so there are none yet, and a fork is safe with one worker (decision 71).
"""

import logging
import os
import runpy
from typing import Any

from burnish.processes.vllm_server import SERVER


def main() -> None:
    """Serve until the server ends."""
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config

    def check_and_fork(config: Any) -> None:
        check(config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    CpuPlatform.check_and_update_config = staticmethod(check_and_fork)
    logging.getLogger("vllm.model_executor.models.utils").addFilter(_is_news)
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


def _is_news(record: logging.LogRecord) -> bool:
    """False for a line about each weight whose type is not that of the engine. `engine.dtype` says the type."""
    return not str(record.msg).startswith("Attempted to load weight %s with dtype")


if __name__ == "__main__":
    main()
