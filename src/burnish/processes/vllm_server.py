"""The engine's own process: vLLM's API server with the flags that Burnish relies on.

`exec` replaces this process by vLLM, so whoever started it holds vLLM itself. The versions that the serving table lists
are given on the command line: an engine that comes back has them before it answers anyone.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from burnish import serving_table
from burnish.adapters.files.store import AdapterStore
from burnish.config import Settings
from burnish.errors import AdapterError, ConfigError
from burnish.keys import engine_key
from burnish.records import VersionName

IN_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""vLLM's worker in its scheduler's process. As two, which it makes of them on a CPU, one spins on a core while it waits
for the other; by its short name (`uni`) vLLM would not take it there
(docs/decisions/0014-vllm-worker-in-scheduler-process.md)."""
SEVERAL_WORKERS = ("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--distributed-executor-backend")
"""What a user may ask vLLM for that one process cannot do."""


def engine_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.engine.port}"


def command(settings: Settings) -> list[str]:
    """The argument vector of the vLLM server."""
    engine = settings.engine
    has_gpu = shutil.which("nvidia-smi") is not None
    flags: dict[str, object] = {
        "--model": engine.model,
        "--served-model-name": engine.base_name,
        "--host": engine.host,
        "--port": engine.port,
        "--dtype": engine.dtype if engine.dtype != "auto" or has_gpu else "float32",
        "--max-loras": engine.max_loras,
        "--max-cpu-loras": engine.max_cpu_loras,
        "--max-lora-rank": engine.max_lora_rank,
        "--api-server-count": 1,
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",
        "--scheduling-policy": "priority",
        "--max-num-queued-reqs": engine.max_queued,
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
    arguments = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enable-lora"]
    if engine.tool_parser:
        arguments.append("--enable-auto-tool-choice")
    for flag, value in flags.items():
        arguments += [flag, str(value)]
    given = [json.dumps({"name": name, "path": str(path)}) for name, path in settings.engine_adapters.items()]
    modules = [*given, *_known_versions(settings)]
    return [*arguments, *(["--lora-modules", *modules] if modules else []), *engine.extra_args]


def environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the vLLM server; what the user has set stays."""
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
    }
    forced = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_API_KEY": engine_key(settings)}
    if Path(settings.engine.model).is_dir():
        forced["HF_HUB_OFFLINE"] = "1"
    kept = {name: value for name, value in inherited.items() if not name.startswith("BURNISH_")}
    return {**defaults, **kept, **forced}


def check_model(settings: Settings) -> None:
    """Raises ConfigError where the model is a directory path that does not hold a model."""
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
