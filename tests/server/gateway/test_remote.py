"""A remote model in an agent's place: asked through litellm in its own process, recorded, never trained."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from gateways import ENGINE_KEY, Running, make_keys, serve, write_table

from burnish.config import Engine, Gateway, Remote, Settings, to_environment
from burnish.server.gateway import passed_fields
from burnish.testing import Failure, StubEngine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Pair:
    """The remote model (a stub behind litellm) and its URL."""

    model: StubEngine
    url: str


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("remote")
    with StubEngine(["from afar"], base_name="larger", needs_loaded=False) as model:
        settings = Settings(
            state_dir=folder,
            gateway=Gateway(port=free_port()),
            engine=Engine(urls=("http://127.0.0.1:9",), api_key=ENGINE_KEY),
            remote=Remote(model="openai/larger", url=f"{model.url}/v1", api_key="k"),
        )
        url = f"http://127.0.0.1:{settings.remote_port}"
        environment = {**os.environ, **to_environment(settings)}
        process = subprocess.Popen([sys.executable, "-m", "burnish", "run", "remote"], env=environment)
        try:
            deadline = time.monotonic() + 120
            while not answers(f"{url}/health"):
                assert process.poll() is None and time.monotonic() < deadline, "the remote part did not start"
                time.sleep(0.2)
            yield Pair(model, url)
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
    assert (afar.interaction_id, afar.upstream, afar.may_train) == (name, "openai/larger", True)
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


SAID = {"model": "agent", "messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": SAID,
    "/v1/messages": SAID | {"max_tokens": 9},
    "/v1/responses": {"model": "agent", "input": "hi"},
}
LITELLMS_OWN = """
import inspect, json, os
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
from litellm.types.utils import all_litellm_params
from openai.types.chat import completion_create_params as standard
named = {*inspect.signature(litellm.acompletion).parameters, *inspect.signature(litellm.completion).parameters}
named |= {*all_litellm_params, *litellm.OPENAI_CHAT_COMPLETION_PARAMS, "extra_body", "metadata"}
print(json.dumps(sorted(named - ({*standard.CompletionCreateParamsBase.__annotations__, "stream"} - {"metadata"}))))
"""


@pytest.fixture(scope="module")
def own() -> dict[str, Any]:
    """A value for each parameter of litellm that is no field of OpenAI's chat completions."""
    told = subprocess.run([sys.executable, "-c", LITELLMS_OWN], capture_output=True, text=True, check=True).stdout
    names = json.loads(told.splitlines()[-1])
    assert {"api_base", "base_url", "api_key", "extra_headers", "mock_response", "metadata"} <= set(names)
    return dict.fromkeys(names, "planted") | {"thinking": {"type": "disabled"}, "metadata": {"planted": "planted"}}


def asked(gateway: Running, path: str, **more: Any) -> httpx.Response:
    with gateway.client("talker") as client:
        return client.post(path, json=BODIES[path] | more)


@pytest.mark.parametrize("gateway", ["always"], indirect=True)
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", ["base_url", "api_base", "extra_headers", "mock_response", "extra_body", "model_list"])
def test_no_field_of_a_client_changes_where_or_how_it_is_asked(
    gateway: Running, remote: Pair, path: str, name: str
) -> None:
    with StubEngine(["stolen"], base_name="larger", needs_loaded=False) as thief:
        planted = {
            "extra_headers": {"x-planted": "1"},
            "extra_body": {"planted": 1},
            "model_list": [
                {"model_name": "larger", "litellm_params": {"model": "openai/larger", "api_base": thief.url}}
            ],
        }
        reply = asked(gateway, path, **{name: planted.get(name, f"{thief.url}/v1")})
        assert (reply.status_code, "from afar" in reply.text) == (200, True), reply.text
        assert (thief.requests, thief.headers) == ([], [])
    assert set(remote.model.requests[-1]) <= passed_fields.REMOTE | {"model"}
    assert "x-planted" not in remote.model.headers[-1]
    assert name in reply.headers["x-burnish-ignored"].split(", ")


@pytest.mark.parametrize("gateway", ["always"], indirect=True)
@pytest.mark.parametrize("path", BODIES)
def test_none_of_litellms_own_parameters_passes_any_dialect(
    gateway: Running, remote: Pair, own: dict[str, Any], path: str
) -> None:
    reply = asked(gateway, path, **own)
    assert (reply.status_code, "from afar" in reply.text) == (200, True), reply.text
    assert set(remote.model.requests[-1]) <= passed_fields.REMOTE | {"model"}
    assert "planted" not in json.dumps(remote.model.requests[-1])


def test_the_process_that_calls_litellm_drops_them_again(remote: Pair, own: dict[str, Any]) -> None:
    key = {"authorization": f"Bearer {ENGINE_KEY}"}
    reply = httpx.post(f"{remote.url}/v1/chat/completions", json={**SAID, "temperature": 0.5, **own}, headers=key)
    assert (reply.status_code, reply.json()["choices"][0]["message"]["content"]) == (200, "from afar")
    sent = remote.model.requests[-1]
    assert (sent["model"], sent["temperature"]) == ("larger", 0.5)
    assert "planted" not in json.dumps(sent)
    assert passed_fields.kept(own, passed_fields.REMOTE) == {}


@pytest.mark.parametrize("gateway", ["always"], indirect=True)
def test_a_tool_that_litellm_would_run_itself_is_refused(gateway: Running, remote: Pair) -> None:
    with StubEngine(["stolen"]) as thief:
        tool = {"type": "mcp", "server_label": "x", "server_url": f"{thief.url}/mcp/x", "require_approval": "never"}
        n_before = len(remote.model.requests)
        reply = asked(gateway, "/v1/chat/completions", tools=[tool])
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools[0].type")
        assert (thief.headers, len(remote.model.requests)) == ([], n_before)


@pytest.mark.parametrize("gateway", ["always"], indirect=True)
@pytest.mark.parametrize("tool", [{"url_context": {}}, {"code_execution": {}}, {"type": "function"}, {"x": {}}])
def test_a_tool_without_a_definition_is_refused(gateway: Running, remote: Pair, tool: dict[str, Any]) -> None:
    reply = asked(gateway, "/v1/chat/completions", tools=[tool])
    assert reply.status_code == 400


@pytest.mark.parametrize("gateway", ["always"], indirect=True)
def test_only_listed_fields_of_messages_and_tools_go_there(gateway: Running, remote: Pair) -> None:
    address = "https://planted.example/x.png"
    function = {"name": "look", "parameters": {"type": "object", "properties": {}}}
    tool = {"type": "function", "function": function, "url_context": {"url": address}}
    part = {"type": "text", "text": "hi", "image": address, "cache_control": {"type": "ephemeral"}}
    said = {"role": "assistant", "content": "x", "images": [{"image_url": {"url": address}}]}
    last = {"role": "user", "content": [part], "provider_specific_fields": {"planted": address}}
    reply = asked(gateway, "/v1/chat/completions", messages=[*SAID["messages"], said, last], tools=[tool])
    assert reply.status_code == 200, reply.text
    sent = remote.model.requests[-1]
    assert "planted" not in json.dumps(sent)
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize("gateway", ["always"], indirect=True)
def test_openais_own_fields_go_there(gateway: Running, remote: Pair) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    fields = {"seed": 7, "stop": ["x"], "tools": [tool], "tool_choice": "auto", "max_tokens": 9, "top_p": 0.5}
    reply = asked(gateway, "/v1/chat/completions", **fields)
    sent = remote.model.requests[-1]
    assert {name: sent[name] for name in fields} == fields
    assert "x-burnish-ignored" not in reply.headers
