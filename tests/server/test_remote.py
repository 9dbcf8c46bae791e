"""A remote model in an agent's place: asked through litellm in a process of its own, recorded, never trained."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest
from gateways import ENGINE_KEY, Running, make_keys, serve, write_table

from burnish.config import Engine, Remote, Settings, to_environment
from burnish.testing import Failure, StubEngine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Pair:
    """The remote model (a stub behind litellm) and where it is reached."""

    model: StubEngine
    url: str


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("remote")
    with StubEngine(["from afar"], base_name="larger", needs_loaded=False) as model:
        port = free_port()
        settings = Settings(
            state_dir=folder,
            engine=Engine(urls=("http://127.0.0.1:9",), api_key=ENGINE_KEY),
            remote=Remote(model="openai/larger", url=f"{model.url}/v1", api_key="k", port=port),
        )
        environment = {**os.environ, **to_environment(settings)}
        process = subprocess.Popen([sys.executable, "-m", "burnish", "remote"], env=environment)
        try:
            deadline = time.monotonic() + 120
            while not answers(f"http://127.0.0.1:{port}/health"):
                assert process.poll() is None and time.monotonic() < deadline, "the remote part did not start"
                time.sleep(0.2)
            yield Pair(model, f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(30)


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def gateway(tmp_path: Path, remote: Pair, request: pytest.FixtureRequest) -> Iterator[Running]:
    remote.model.failure = None
    use = getattr(request, "param", "fallback")
    away = Remote(model="openai/larger", use=use)
    with (
        StubEngine(api_key=ENGINE_KEY, needs_loaded=False) as engine,
        serve(tmp_path, engine, remote=away) as running,
    ):
        secrets, keys = make_keys()
        running.secrets.update(secrets)
        write_table(running.settings, (engine.url,), keys, remote_url=remote.url)
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_it_answers_when_no_engine_can(gateway: Running, stream: bool) -> None:
    assert gateway.chat().headers["x-burnish-version"] == "agent@v2"
    gateway.engine.failure = Failure.FULL
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secrets["talker"], max_retries=0) as client:
        if stream:
            chunks = list(
                client.chat.completions.create(model="agent", messages=[{"role": "user", "content": "hi"}], stream=True)
            )
            text, name = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks[0].id
        else:
            reply = client.chat.completions.create(model="agent", messages=[{"role": "user", "content": "hi"}])
            text, name = reply.choices[0].message.content or "", reply.id
            assert reply.model == "agent@remote"
    assert text == "from afar"
    here, afar = gateway.interactions
    assert (here.upstream, here.may_train) == (None, True)
    assert (afar.interaction_id, afar.upstream, afar.may_train) == (name, "openai/larger", False)
    assert (afar.reply["content"], afar.quarantine) == ("from afar", None)
    assert name == f"chatcmpl-{afar.request_id}"


def test_what_only_our_engine_knows_is_not_sent_there(gateway: Running, remote: Pair) -> None:
    gateway.engine.failure = Failure.FULL
    assert gateway.chat(temperature=0.5, cache_salt="x").status_code == 200
    sent = remote.model.requests[-1]
    assert sent["model"] == "larger"
    assert sent["temperature"] == 0.5
    assert not {"return_token_ids", "logprobs", "cache_salt"} & set(sent)


def test_the_base_and_text_completions_have_no_stand_in(gateway: Running) -> None:
    gateway.engine.failure = Failure.FULL
    assert gateway.chat(model="base").status_code == 503
    with gateway.client() as client:
        assert client.post("/v1/completions", json={"model": "agent", "prompt": "x"}).status_code == 503


def test_both_away_is_a_503(gateway: Running, remote: Pair) -> None:
    gateway.engine.failure = Failure.FULL
    remote.model.failure = Failure.REFUSE
    refused = gateway.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unavailable")
    assert "retry-after" in refused.headers
    assert gateway.interactions == []


@pytest.mark.parametrize("gateway", ["always"], indirect=True)
def test_it_may_answer_in_the_agents_name_always(gateway: Running) -> None:
    reply = gateway.chat()
    assert (reply.headers["x-burnish-version"], gateway.engine.requests) == ("agent@remote", [])
    with gateway.client() as client:
        said = client.post(
            "/v1/messages", json={"model": "agent", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        )
    assert said.json()["content"][0]["text"] == "from afar"
    assert [row.upstream for row in gateway.interactions] == ["openai/larger"] * 2


def test_nobody_without_the_key_reaches_it(remote: Pair) -> None:
    body = {"model": "x", "messages": [{"role": "user", "content": "hi"}]}
    assert httpx.post(f"{remote.url}/v1/chat/completions", json=body).status_code == 401
