"""The engine's process: vLLM's API server with the flags that Burnish relies on.

`exec` replaces this process by vLLM, so the supervisor watches vLLM itself. The versions in the serving table are given
on the command line, so an engine that comes back has them before it answers.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from burnish import serving_table
from burnish.adapters import model_files
from burnish.adapters.files.store import AdapterStore
from burnish.config import BASE_NAME, Settings, machine
from burnish.errors import AdapterError, ConfigError
from burnish.keys import engine_key
from burnish.records import VersionName

IN_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""vLLM's worker in its scheduler's process. On a CPU vLLM makes two processes, and the one that waits spins on a core.
It rejects the short name (`uni`) there, so the full name is given (decision 14).
"""
SEVERAL_WORKERS = ("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--distributed-executor-backend")
"""vLLM flags for several workers, which one process cannot serve."""
MAX_QUEUED = 512
"""Requests that may wait in the engine. Beyond that it answers 503."""


def engine_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.engine.port}"


def command(settings: Settings) -> list[str]:
    """The argument vector of the vLLM server."""
    engine = settings.engine
    has_gpu = shutil.which("nvidia-smi") is not None
    flags: dict[str, object] = {
        "--model": engine.model,
        "--served-model-name": BASE_NAME,
        "--host": engine.host,
        "--port": engine.port,
        "--dtype": engine.dtype if engine.dtype != "auto" or has_gpu else "float32",
        "--api-server-count": 1,
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",
        "--scheduling-policy": "priority",
        "--max-num-queued-reqs": MAX_QUEUED,
        "--uvicorn-log-level": "warning",
    }
    if engine.max_model_len:
        flags["--max-model-len"] = engine.max_model_len
    if engine.tool_parser:
        flags["--tool-call-parser"] = engine.tool_parser
    if engine.reasoning_parser:
        flags["--reasoning-parser"] = engine.reasoning_parser
    if has_gpu:
        flags["--gpu-memory-utilization"] = engine.gpu_memory
    else:
        flags["--worker-extension-cls"] = "burnish.vllm_patches.Patched"
        if not any(given.startswith(SEVERAL_WORKERS) for given in engine.extra_args):
            flags["--distributed-executor-backend"] = IN_PROCESS
    arguments = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    takes_adapters = model_files.takes_adapters(engine.model)
    if takes_adapters:
        arguments.append("--enable-lora")
        flags["--max-loras"] = engine.max_loras
        flags["--max-cpu-loras"] = 2 * engine.max_loras
        flags["--max-lora-rank"] = engine.max_lora_rank
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
    forced = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_API_KEY": engine_key(settings)}
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
