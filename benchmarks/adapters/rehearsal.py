"""`python -m benchmarks.adapters.rehearsal`: a canary stops one bad version, a watch rolls another one back.

Gateway, ingester, swapper and command line are the real processes. A scripted engine plays the model, and simulated
users rate its replies through `/v1/feedback`. v1 is better than the base, v2 and v3 are bad. v3 comes at night, when
its canary gets no traffic. Prints a transcript.
"""

import asyncio
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any

import httpx
from sqlmodel import Session

from burnish import config
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import canaries, lifecycle
from burnish.journal import Journal
from burnish.journal.tables import SampleRow, StepRow
from burnish.processes.parts import gateway_url
from burnish.records import CanaryState, Observation
from burnish.sandbox.demo import stack
from burnish.testing import StubEngine
from burnish.testing.stub_reply import logprob_of

GOOD, BAD = "Certainly: here is what you asked for.", "No."
QUALITY = {"base": 0.75, "agent@v1": 0.9, "agent@v2": 0.45, "agent@v3": 0.35}
"""The share of a version's replies that users like."""
NIGHT = 30.0
PATIENCE = 120.0


def main() -> None:
    """Run the story. Exit status 1 if it does not go as expected."""
    with tempfile.TemporaryDirectory(prefix="burnish-rehearsal-") as folder, StubEngine(replies=_reply) as engine:
        settings = config.load(
            flags={
                "state_dir": folder,
                "engine.urls": [engine.url],
                "gateway.port": _free_port(),
                "learner.enabled": False,
                "canary.mode": "on",
                "canary.share": 0.3,
                "canary.max_hours": NIGHT / 3600,
            }
        )
        asyncio.run(Story(settings).tell())


class Story:
    """The events in order."""

    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        self._chance = random.Random(7)
        self._last: dict[str, str] = {}

    async def tell(self) -> None:
        """Run the whole story."""
        key = stack.make_user_key(self._settings)
        self._journal = Journal.open(self._settings.journal_url)
        async with stack.running(self._settings, self._settings.state_dir / "parts.log"):
            headers = {"authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(
                base_url=gateway_url(self._settings), headers=headers, timeout=30
            ) as self._http:
                await self._canaries()
                await self._night()

    async def _canaries(self) -> None:
        _print_heading("users talk with the base; the learner publishes v1, which is better, and then v2, which is bad")
        for number, outcome in ((1, CanaryState.PASSED), (2, CanaryState.STOPPED)):
            _publish(self._settings, self._journal, number, self._live())
            await self._talk_until(Observation.CANARY, number, outcome)
        await self._run("canary", "status")
        await self._run("versions", "list")
        await self._run("turns", "show", self._last["agent@v2"], only=("agent", "effective reward", "training"))

    async def _night(self) -> None:
        _print_heading(
            f"v3 is bad too and comes at night: there are no requests for {NIGHT:.0f} s, and its canary is skipped"
        )
        _publish(self._settings, self._journal, 3, self._live())
        await self._wait(Observation.CANARY, 3, CanaryState.SKIPPED)
        _print_heading("in the morning users talk again; v3 is live and on watch")
        await self._talk_until(Observation.WATCH, 3, CanaryState.STOPPED)
        await self._run("canary", "status", "--limit", "2")
        await self._run("versions", "list")
        await asyncio.sleep(1.0)
        await self._run("turns", "show", self._last["agent@v3"], only=("agent", "effective reward", "training"))

    async def _talk_until(self, kind: Observation, number: int, outcome: CanaryState) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._state(kind, number) != outcome:
            assert time.monotonic() < deadline, (
                f"{kind} of v{number}: waited for {outcome}, found {self._state(kind, number)}"
            )
            await asyncio.gather(*[self._turn() for _ in range(8)])
            await asyncio.sleep(0.1)

    async def _wait(self, kind: Observation, number: int, outcome: CanaryState) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._state(kind, number) != outcome:
            assert time.monotonic() < deadline, (
                f"{kind} of v{number}: waited for {outcome}, found {self._state(kind, number)}"
            )
            await asyncio.sleep(0.2)

    async def _turn(self) -> None:
        """One user asks one thing in a new conversation and rates the reply."""
        name = f"{self._chance.random()}"
        body = {
            "model": "agent",
            "messages": [{"role": "user", "content": f"Question {name}"}],
            "user": f"u-{name[-2:]}",
        }
        reply = await self._http.post("/v1/chat/completions", json=body, headers={"x-burnish-session": name})
        reply.raise_for_status()
        version, answer = reply.headers["x-burnish-version"], reply.json()
        quality = QUALITY.get(version, QUALITY["base"])
        rating = "up" if self._chance.random() < quality else "down"
        (await self._http.post("/v1/feedback", json={"target": answer["id"], "rating": rating})).raise_for_status()
        self._last[version] = answer["id"]

    async def _run(self, *arguments: str, only: tuple[str, ...] = ()) -> None:
        """Run a command of the product and print its output.

        If `only` is given, print the lines with one of its words at the start.
        """
        shown = " ".join(arguments)
        print(f"\n$ burnish {shown}", flush=True)
        flags = ["--state", str(self._settings.state_dir)]
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "burnish",
            *arguments,
            *flags,
            stdout=subprocess.PIPE,
            env={**os.environ, **config.to_environment(self._settings), "COLUMNS": "118"},
        )
        out = (await child.communicate())[0].decode()
        lines = out.splitlines()
        print("\n".join(line for line in lines if not only or any(word in line[:24] for word in only)), flush=True)

    def _state(self, kind: Observation, number: int) -> str | None:
        with self._journal.read() as session:
            found = [row for row in canaries.history(session, "agent", 20) if (row.kind, row.version) == (kind, number)]
        return found[0].state if found else None

    def _live(self) -> int:
        with self._journal.read() as session:
            return lifecycle.alias(session, "agent") or 0


def _publish(settings: config.Settings, journal: Journal, number: int, parent: int) -> None:
    """A version like one from a learner's step, with a probe that the scripted engine passes."""
    token = ord(GOOD[0])
    place = {"row": 0, "index": 0, "token_id": token, "candidate": logprob_of(f"agent@v{number}", token)}
    place |= {"parent": logprob_of(f"agent@v{parent}", token), "base": logprob_of("base", token)}
    probe = {"rows": [{"prompt_ids": [1, 2], "completion_ids": [token]}], "positions": [place]}
    store, facts = AdapterStore(settings.adapters_dir), {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": parent}
    with store.aside("agent", number) as folder:
        (folder / "adapter_model.safetensors").write_bytes(_weights(2))
        (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}))
        (folder / "probe.json").write_text(json.dumps(probe))
        store.publish("agent", number, folder, facts)
    with journal.write() as session:
        _announce(session, number, parent)


def _announce(session: Session, number: int, parent: int) -> None:
    step = StepRow(agent="agent", version=number, parent=parent, outcome="open", metrics={}, started_at=time.time())
    session.add(step)
    session.flush()
    assert step.step_id is not None
    session.add(SampleRow(step_id=step.step_id, interaction_id=f"row-{number}", record_ids=[]))
    lifecycle.announce(session, "agent", number, parent=parent, step_id=step.step_id, digest="-")


def _weights(rank: int) -> bytes:
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    shapes = {f"{layer}.lora_A.weight": [rank, 8], f"{layer}.lora_B.weight": [8, rank]}
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [at * 32 * rank, (at + 1) * 32 * rank]}
        for at, (name, shape) in enumerate(shapes.items())
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64 * rank)


def _reply(body: dict[str, Any], _: int) -> str:
    return BAD if QUALITY.get(str(body["model"]), 1.0) < 0.5 and "messages" in body and _is_live(body) else GOOD


def _is_live(body: dict[str, Any]) -> bool:
    return str(body["messages"][-1].get("content", "")).startswith("Question ")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _print_heading(text: str) -> None:
    print(f"\n# {text}", flush=True)


if __name__ == "__main__":
    main()
