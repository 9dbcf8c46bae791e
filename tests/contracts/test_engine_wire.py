"""The stub engine has vLLM's wire shape: the same keys and types, chunk by chunk, as the real server.

Values differ. If one side has null, the other's type is not compared.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from vllm_process import VllmServer

from burnish.testing import EOS, TOO_LONG, Scene, Script, Scripted, ScriptedEngine, Step, StubEngine

pytestmark = pytest.mark.engine

MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "pick",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"x": {"enum": ["a"]}},
            "required": ["x"],
            "additionalProperties": False,
        },
    },
}
IDS = {"return_token_ids": True, "logprobs": True}
TOOLS = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200, "temperature": 0}


@pytest.fixture(scope="module")
def real(vllm_server: VllmServer) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=vllm_server.url, headers={"authorization": f"Bearer {vllm_server.api_key}"}, timeout=120
    ) as client:
        yield client


@pytest.fixture
def stub() -> Iterator[httpx.Client]:
    with (
        StubEngine(api_key="k") as engine,
        httpx.Client(base_url=engine.url, headers={"authorization": "Bearer k"}) as client,
    ):
        yield client


@pytest.fixture
def stub_tools() -> Iterator[httpx.Client]:
    replies = [Scripted("", [("pick", '{"x": "a"}')])]
    with StubEngine(replies) as engine, httpx.Client(base_url=engine.url) as client:
        yield client


def shape(value: Any) -> Any:
    """Keys and types of a JSON value. A list has the shape of its elements together."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        merged: Any = None
        for inner in value:
            merged = union(merged, shape(inner))
        return [merged]
    return (
        None
        if value is None
        else "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else type(value).__name__
    )


def union(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: union(one.get(key), other.get(key)) for key in {*one, *other}}
    if isinstance(one, list) and isinstance(other, list):
        return [union(one[0], other[0])]
    assert one == other, f"two types in one place: {one} and {other}"
    return one


def assert_same(real: Any, stub: Any, path: str = "$") -> None:
    if real is None or stub is None:
        return
    assert type(real) is type(stub), f"{path}: vLLM has {real}, the stub {stub}"
    if isinstance(real, dict):
        assert set(real) == set(stub), f"{path}: keys differ: {set(real) ^ set(stub)}"
        for key in real:
            assert_same(real[key], stub[key], f"{path}.{key}")
    elif isinstance(real, list):
        assert_same(real[0], stub[0], f"{path}[]")
    else:
        assert real == stub, f"{path}: vLLM has {real}, the stub {stub}"


def chat(client: httpx.Client, **body: Any) -> Any:
    response = client.post(
        "/v1/chat/completions", json={"model": "base", "messages": MESSAGES, "max_tokens": 6, **body}
    )
    assert response.status_code == 200, response.text
    return response


def stream(client: httpx.Client, **body: Any) -> dict[str, Any]:
    """The shapes of a stream's chunks by their role."""
    text = chat(client, stream=True, **body).text
    assert text.endswith("data: [DONE]\n\n")
    parts: dict[str, Any] = {}
    for event in text.split("\n\n")[:-2]:
        chunk = json.loads(event.removeprefix("data: "))
        part = part_of(chunk)
        parts[part] = union(parts.get(part), shape(chunk))
    return parts


def part_of(chunk: dict[str, Any]) -> str:
    if not chunk["choices"]:
        return "usage"
    (choice,) = chunk["choices"]
    if choice["finish_reason"]:
        return "finish"
    delta = choice["delta"]
    if "role" in delta:
        return "opening"
    if delta.get("tool_calls"):
        return "call" if "id" in delta["tool_calls"][0] else "arguments"
    return "text" if delta.get("content") else "silent"


@pytest.mark.parametrize(
    "body",
    [
        {},
        IDS,
        IDS | {"n": 2},
        IDS | {"top_logprobs": 2},
        IDS | {"stream_options": {"include_usage": True}},
    ],
)
def test_streams(real: httpx.Client, stub: httpx.Client, body: dict[str, Any]) -> None:
    theirs, ours = stream(real, **body), stream(stub, **body)
    assert {"opening", "finish"} <= set(theirs) & set(ours)
    for part in set(theirs) & set(ours):
        loosened = (
            [drop_delta(parts[part]) for parts in (theirs, ours)] if part == "finish" else [theirs[part], ours[part]]
        )
        assert_same(*loosened, path=part)
    assert ("usage" in theirs) == ("usage" in ours)


def drop_delta(tree: Any) -> Any:
    """A finish chunk without its delta, because the reply decides whether the last token has text."""
    return tree | {"choices": [{key: value for key, value in tree["choices"][0].items() if key != "delta"}]}


@pytest.mark.parametrize("body", [{}, IDS, IDS | {"n": 2}, IDS | {"top_logprobs": 2}])
def test_whole_replies(real: httpx.Client, stub: httpx.Client, body: dict[str, Any]) -> None:
    assert_same(shape(chat(real, **body).json()), shape(chat(stub, **body).json()))


def test_tool_calls(real: httpx.Client, stub_tools: httpx.Client) -> None:
    assert_same(shape(chat(real, **TOOLS, **IDS).json()), shape(chat(stub_tools, **TOOLS, **IDS).json()))
    theirs, ours = stream(real, **TOOLS, **IDS), stream(stub_tools, **TOOLS, **IDS)
    for part in ("opening", "call", "arguments", "silent"):
        assert_same(theirs[part], ours[part], path=part)


@pytest.mark.parametrize("body", [{}, {"n": 2}, TOOLS, {"stop": ["e", "a", "o"]}, {"top_p": 0.5}, {"temperature": 0}])
@pytest.mark.parametrize("streamed", [True, False])
def test_every_sampled_token_has_one_id_and_one_log_prob(
    real: httpx.Client, body: dict[str, Any], streamed: bool
) -> None:
    response = chat(real, stream=streamed, **{"max_tokens": 40, **body}, **IDS)
    n_ids: dict[int, int] = {}
    n_logprobs: dict[int, int] = {}
    chunks = (
        [json.loads(e[6:]) for e in response.text.split("\n\n") if e.startswith("data: {")]
        if streamed
        else [response.json()]
    )
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        n_ids[choice["index"]] = n_ids.get(choice["index"], 0) + len(choice.get("token_ids") or ())
        content = (choice["logprobs"] or {}).get("content") or ()
        n_logprobs[choice["index"]] = n_logprobs.get(choice["index"], 0) + len(content)
        assert all(-9998 < entry["logprob"] <= 1e-3 for entry in content)
    assert n_ids == n_logprobs
    assert min(n_ids.values()) > 0
    assert chunks[0]["prompt_token_ids"]


def complete(client: httpx.Client, **body: Any) -> Any:
    response = client.post(
        "/v1/completions", json={"model": "base", "prompt": "hello", "max_tokens": 6, "ignore_eos": True, **body}
    )
    assert response.status_code == 200, response.text
    return response


TEXT_IDS = {"return_token_ids": True, "logprobs": 0}
MANY = {"prompt": ["hello", "good day"], "n": 2}


@pytest.mark.parametrize("body", [{}, TEXT_IDS, TEXT_IDS | MANY, {"return_token_ids": True}, {"logprobs": 2}])
def test_text_completions(real: httpx.Client, stub: httpx.Client, body: dict[str, Any]) -> None:
    theirs, ours = (unkeyed_text(complete(client, **body).json()) for client in (real, stub))
    assert_same(shape(theirs), shape(ours))
    assert len(theirs["choices"]) == len(ours["choices"])


@pytest.mark.parametrize(
    "body", [{}, TEXT_IDS, TEXT_IDS | MANY, TEXT_IDS | {"stream_options": {"include_usage": True}}]
)
def test_streamed_text_completions(real: httpx.Client, stub: httpx.Client, body: dict[str, Any]) -> None:
    theirs, ours = text_stream(real, **body), text_stream(stub, **body)
    assert {"opening", "finish"} <= set(theirs) & set(ours)
    for part in set(theirs) & set(ours):
        assert_same(theirs[part], ours[part], path=part)
    assert ("usage" in theirs) == ("usage" in ours)


def text_stream(client: httpx.Client, **body: Any) -> dict[str, Any]:
    """The shapes of a text stream's chunks by their role. A choice's first chunk holds its prompt.

    vLLM joins the chunks that a slow reader has not taken yet. A long text is not joined whole.
    """
    text = complete(client, stream=True, max_tokens=100, **body).text
    assert text.endswith("data: [DONE]\n\n")
    parts: dict[str, Any] = {}
    seen: set[int] = set()
    for event in text.split("\n\n")[:-2]:
        chunk = json.loads(event.removeprefix("data: "))
        index = chunk["choices"][0]["index"] if chunk["choices"] else None
        if index is None:
            part = "usage"
        elif chunk["choices"][0]["finish_reason"]:
            part = "finish"
        else:
            part = "text" if index in seen else "opening"
            seen.add(index)
        parts[part] = union(parts.get(part), shape(unkeyed_text(chunk)))
    return parts


def unkeyed_text(tree: Any) -> Any:
    """The value without the maps whose keys are tokens."""
    choices = [
        choice
        if not choice["logprobs"]
        else choice
        | {
            "logprobs": choice["logprobs"]
            | {"top_logprobs": [list(t.values()) for t in choice["logprobs"]["top_logprobs"]]}
        }
        for choice in tree["choices"]
    ]
    return tree | {"choices": choices}


@pytest.mark.parametrize("body", [{}, {"n": 2}, {"stop": ["e", "a", "o"]}, MANY])
@pytest.mark.parametrize("streamed", [True, False])
def test_every_token_of_a_text_has_one_id_and_one_log_prob(
    real: httpx.Client, stub: httpx.Client, body: dict[str, Any], streamed: bool
) -> None:
    for client in (real, stub):
        response = complete(client, stream=streamed, **{"max_tokens": 40, **body}, **TEXT_IDS)
        events = (
            [json.loads(e[6:]) for e in response.text.split("\n\n") if e.startswith("data: {")]
            if streamed
            else [response.json()]
        )
        n_ids: dict[int, int] = {}
        n_logprobs: dict[int, int] = {}
        prompts: dict[int, list[int]] = {}
        for choice in (choice for event in events for choice in event["choices"]):
            index = choice["index"]
            n_ids[index] = n_ids.get(index, 0) + len(choice["token_ids"])
            n_logprobs[index] = n_logprobs.get(index, 0) + len(choice["logprobs"]["token_logprobs"])
            if choice["prompt_token_ids"]:
                prompts[index] = choice["prompt_token_ids"]
        assert n_ids == n_logprobs
        assert set(prompts) == set(n_ids)
        assert min(n_ids.values()) > 0


def test_limits_and_stops_end_alike(real: httpx.Client, stub: httpx.Client) -> None:
    for client in (real, stub):
        cut = chat(client, max_tokens=2, ignore_eos=True, **IDS).json()["choices"][0]
        assert (cut["finish_reason"], cut["stop_reason"], len(cut["token_ids"])) == ("length", None, 2)
    word = chat(real, temperature=0, max_tokens=30).json()["choices"][0]["message"]["content"].strip()[1:3]
    for client, stop in ((real, word), (stub, "ll")):
        stopped = chat(client, temperature=0, max_tokens=30, stop=[stop], **IDS).json()["choices"][0]
        assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", stop)
        assert stop not in stopped["message"]["content"]
        assert len(stopped["token_ids"]) == len(stopped["logprobs"]["content"])


@pytest.mark.parametrize("body", [{"messages": MESSAGES}, {"messages": MESSAGES, "tools": [TOOL]}, {"prompt": "hello"}])
def test_tokenize(real: httpx.Client, stub: httpx.Client, body: dict[str, Any]) -> None:
    theirs, ours = (client.post("/tokenize", json={"model": "base", **body}) for client in (real, stub))
    assert theirs.status_code == ours.status_code == 200
    assert_same(shape(theirs.json()), shape(ours.json()))
    for tree in (theirs.json(), ours.json()):
        assert tree["count"] == len(tree["tokens"]) > 0


def test_a_prompt_that_is_too_long(real: httpx.Client) -> None:
    body = {"model": "base", "messages": [{"role": "user", "content": "hello scene:long " * 3000}], "max_tokens": 6}
    script = Script([Scene("long", [Step([Scripted("@mark")], [TOO_LONG])])])
    with ScriptedEngine(script=script) as engine, httpx.Client(base_url=engine.url) as stub:
        theirs, ours = (client.post("/v1/chat/completions", json=body) for client in (real, stub))
    assert theirs.status_code == ours.status_code == 400
    assert_same(shape(theirs.json()), shape(ours.json()))
    for answer in (theirs, ours):
        assert answer.json()["error"]["message"].startswith("This model's maximum context length is ")
    assert theirs.json()["error"]["type"] == ours.json()["error"]["type"]


def test_models_and_scoring(real: httpx.Client, stub: httpx.Client) -> None:
    scored = {
        "model": "base",
        "prompt": [5, 6, 7],
        "max_tokens": 1,
        "prompt_logprobs": 0,
        "logprobs": 0,
        "return_token_ids": True,
    }
    theirs, ours = (client.post("/v1/completions", json=scored).json() for client in (real, stub))
    assert_same(shape(unkeyed(theirs)), shape(unkeyed(ours)))
    entries = [[set(entry) for entry in tree["choices"][0]["prompt_logprobs"][1:]] for tree in (theirs, ours)]
    assert entries[0] == entries[1] == [{"6"}, {"7"}]
    listed = [set(client.get("/v1/models").json()["data"][0]) for client in (real, stub)]
    assert listed[1] <= listed[0]


def unkeyed(tree: Any) -> Any:
    """The value without the maps whose keys are tokens."""
    choice = tree["choices"][0]
    choice = choice | {"prompt_logprobs": [list(entry.values()) for entry in choice["prompt_logprobs"][1:]]}
    choice["logprobs"] = choice["logprobs"] | {
        "top_logprobs": [list(entry.values()) for entry in choice["logprobs"]["top_logprobs"]]
    }
    return tree | {"choices": [choice]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/load_lora_adapter", {"lora_name": "a@v1", "lora_path": "/nowhere"}),
        ("/v1/load_lora_adapter", {"lora_name": "base", "lora_path": "/nowhere"}),
        ("/v1/unload_lora_adapter", {"lora_name": "a@v1"}),
        ("/v1/chat/completions", {"model": "a@v1", "messages": MESSAGES}),
        ("/v1/chat/completions", {"model": "base", "messages": MESSAGES, "temperature": "hot"}),
    ],
)
def test_refusals(real: httpx.Client, stub: httpx.Client, path: str, body: dict[str, Any]) -> None:
    theirs, ours = (client.post(path, json=body) for client in (real, stub))
    assert theirs.status_code == ours.status_code
    assert_same(shape(theirs.json()), shape(ours.json()))
    assert theirs.json()["error"]["param"] == ours.json()["error"]["param"]


def test_the_engine_wants_its_key(vllm_server: VllmServer) -> None:
    with StubEngine(api_key="k") as engine:
        for url, key in ((vllm_server.url, vllm_server.api_key), (engine.url, "k")):
            for path in ("/v1/models", "/health", "/metrics", "/version", "/openapi.json"):
                assert httpx.get(url + path).status_code == 401
            for path in ("/tokenize", "/detokenize", "/invocations", "/scale_elastic_ep", "/nowhere"):
                assert httpx.post(url + path, json={"prompt": "x"}).status_code == 401
            for path in ("/v1/models", "/health"):
                assert httpx.get(url + path, headers={"authorization": f"Bearer {key}"}).status_code == 200


def test_the_stub_counts_its_end_token() -> None:
    assert Scripted("é").token_ids == [0xC3, 0xA9, EOS]
