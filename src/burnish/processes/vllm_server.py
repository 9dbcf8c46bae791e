"""The engine's process: vLLM's API server with the flags that Burnish relies on.

`exec` replaces this process by vLLM, so the supervisor watches vLLM itself. The versions in the serving table are given
on the command line, so an engine that comes back has them before it answers.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import structlog

from burnish import serving_table
from burnish.adapters import model_files
from burnish.adapters.files.store import AdapterStore
from burnish.config import BASE_NAME, Settings, machine
from burnish.errors import AdapterError, ConfigError
from burnish.files import replace_text
from burnish.keys import engine_key
from burnish.processes.engine_guard import KEY, Guard
from burnish.records import VersionName

log = structlog.get_logger()
SERVER = "vllm.entrypoints.openai.api_server"
ON_CPU = "burnish.processes.vllm_on_cpu"
"""The same server on a CPU, with one worker and the pinned version of vLLM (decision 71)."""
IN_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""vLLM's worker in its scheduler's process. On a CPU vLLM makes two processes, and the one that waits spins on a core.
It rejects the short name (`uni`) there, so the full name is given (decision 14).
"""
SEVERAL_WORKERS = ("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--distributed-executor-backend")
"""vLLM flags for several workers, which one process cannot serve."""
NOWHERE = "nowhere.invalid"
"""The only domain that the engine may fetch media from. RFC 6761 keeps it from existing."""
MAX_QUEUED = 512
"""Requests that may wait in the engine. Beyond that it answers 503."""
PINNED = "0.32.0"
"""The version of vLLM that this is made for. It knows every flag."""
DISPENSABLE = frozenset({"--api-server-count", "--max-num-queued-reqs", "--uvicorn-log-level"})
"""Flags that another version may lack: replies are right without them. Any other flag is given all the same, and vLLM
refuses what it does not know."""


def engine_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.engine.port}"


def command(settings: Settings) -> list[str]:
    """The argument vector of the vLLM server."""
    engine, server = settings.engine, SERVER
    flags: dict[str, object] = {
        "--model": engine.model,
        "--served-model-name": BASE_NAME,
        "--host": engine.host,
        "--port": engine.port,
        "--dtype": machine.dtype(engine.dtype, engine.model),
        "--api-server-count": 1,
        "--logprobs-mode": "raw_logprobs",
        "--generation-config": "vllm",
        "--scheduling-policy": "priority",
        "--max-num-queued-reqs": MAX_QUEUED,
        "--uvicorn-log-level": "warning",
        "--allowed-media-domains": NOWHERE,
        "--middleware": f"{Guard.__module__}.{Guard.__qualname__}",
    }
    if engine.max_model_len:
        flags["--max-model-len"] = engine.max_model_len
    if engine.tool_parser:
        flags["--tool-call-parser"] = engine.tool_parser
    if engine.reasoning_parser:
        flags["--reasoning-parser"] = engine.reasoning_parser
    if machine.has_gpu():
        flags["--gpu-memory-utilization"] = engine.gpu_memory
    else:
        flags["--worker-extension-cls"] = "burnish.vllm_patches.Patched"
        if not any(given.startswith(SEVERAL_WORKERS) for given in engine.extra_args):
            flags["--distributed-executor-backend"] = IN_PROCESS
            server = ON_CPU if _is_pinned() else SERVER
    takes_adapters = model_files.takes_adapters(engine.model)
    if takes_adapters:
        flags["--max-loras"] = engine.max_loras
        flags["--max-cpu-loras"] = 2 * engine.max_loras
        flags["--max-lora-rank"] = engine.max_lora_rank
    if lacking := sorted(DISPENSABLE - _known_flags(settings.run_dir)):
        log.warning("this vLLM lacks flags: they are left out", version=_version(), pinned=PINNED, flags=lacking)
        flags = {name: value for name, value in flags.items() if name not in lacking}
    arguments = [sys.executable, "-m", server]
    if takes_adapters:
        arguments.append("--enable-lora")
        if not machine.has_gpu():  # vLLM never compiles there with adapters, and only with this flag takes its kernels
            arguments.append("--enforce-eager")
    if engine.tool_parser:
        arguments.append("--enable-auto-tool-choice")
    for flag, value in flags.items():
        arguments += [flag, str(value)]
    given = [json.dumps({"name": name, "path": str(path)}) for name, path in settings.engine_adapters.items()]
    modules = [*given, *_known_versions(settings)] if takes_adapters else []
    return [*arguments, *(["--lora-modules", *modules] if modules else []), *engine.extra_args]


def environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the vLLM server. Variables that the user has set stay."""
    model = settings.engine.model
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(machine.kv_cache_gib(model)),
        "VLLM_LOGGING_LEVEL": "WARNING",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": str(machine.n_threads(model)),
    }
    if (allocator := machine.preload()) is not None:
        defaults["LD_PRELOAD"] = allocator
    forced = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", KEY: engine_key(settings)}
    if Path(model).is_dir():
        forced["HF_HUB_OFFLINE"] = "1"
    kept = {name: value for name, value in inherited.items() if not name.startswith("BURNISH_")}
    return {**defaults, **kept, **forced}


def check_model(settings: Settings) -> None:
    """Raises ConfigError if the model is a path without a model."""
    path = Path(settings.engine.model)
    looks_like_path = path.is_absolute() or settings.engine.model.startswith((".", "~")) or path.exists()
    if looks_like_path and not (path / "config.json").exists():
        raise ConfigError(
            f"engine.model: no model in {path} (config.json is missing); give the directory of a causal LM, "
            "or leave the setting out to use the sandbox's own"
        )


def execute(settings: Settings) -> None:
    """Become vLLM. Returns only by raising ConfigError."""
    check_model(settings)
    if settings.engine.urls:
        raise ConfigError("engine.urls names engines that are running already; there is none to start here")
    arguments, variables = command(settings), environment(settings, os.environ)
    os.execve(arguments[0], arguments, variables)


def _version() -> str | None:
    """The installed vLLM's version. None if there is none here."""
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def _is_pinned() -> bool:
    return (_version() or "").partition("+")[0] == PINNED


def _known_flags(folder: Path) -> frozenset[str]:
    """The dispensable flags that the installed vLLM knows.

    Another version than the pinned one is asked once, which takes as long as an import of vLLM, and its answer is kept
    in `folder`. If it does not answer, every flag counts as known.
    """
    version = _version()
    if version is None or _is_pinned():
        return DISPENSABLE
    file = folder / f"vllm-{version}-flags.txt"
    if not file.exists():
        asked = subprocess.run(
            [sys.executable, "-m", SERVER, "--help=all"], capture_output=True, text=True, check=False
        ).stdout
        if "--enable-lora" not in asked:
            return DISPENSABLE
        replace_text(file, "\n".join(sorted(set(re.findall(r"--[a-z][a-z-]+", asked)))) + "\n")
    return DISPENSABLE & set(file.read_text(encoding="utf-8").split())


def _known_versions(settings: Settings) -> Sequence[str]:
    table = serving_table.watch(settings.run_dir / "routes.json").current()
    store = AdapterStore.of(settings)
    modules = []
    for agent in table.agents.values():
        for number in agent.loaded:
            try:
                store.verify(agent.name, number)
            except AdapterError:
                # the swapper reports it; an engine that does not start would take the healthy versions down too
                continue
            name = VersionName(agent.name, number)
            modules.append(json.dumps({"name": str(name), "path": str(store.path(agent.name, number))}))
    return modules
