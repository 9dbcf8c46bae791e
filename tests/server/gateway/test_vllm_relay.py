"""The gateway in front of the real vLLM: the record equals what the engine sampled."""

import json
from pathlib import Path
from typing import Any

import pytest
from gateways import make_keys, records, serve, write_table
from vllm_process import VllmServer

from burnish.testing import StubEngine

pytestmark = pytest.mark.engine

TOOL = {
    "type": "function",
    "function": {
        "name": "pick",
        "strict": True,
        "parameters": {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"]},
    },
}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"n": 2},
        {"stop": ["e", "a", "o"]},
        {"tools": [TOOL], "tool_choice": "required", "temperature": 0, "max_tokens": 200},
        {"tools": [TOOL], "temperature": 0},
        {"logprobs": True, "top_logprobs": 1, "return_token_ids": True},
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_turns_add_up(vllm_server: VllmServer, tmp_path: Path, body: dict[str, Any], stream: bool) -> None:
    with serve(tmp_path, StubEngine()) as gateway:
        write_table(gateway.settings, (vllm_server.url,), make_keys()[1], engine_key=vllm_server.api_key)
        response = gateway.chat(**{"model": "base", "max_tokens": 30, "stream": stream, **body})
        assert response.status_code == 200, response.text
        rows = records(gateway.settings.segments_dir)
    assert len(rows) == body.get("n", 1)
    for row in rows:
        assert (row.quarantine, row.is_aborted) == (None, False)
        assert len(row.token_ids) == len(row.logprobs) > 0
        assert row.prompt_ids
    chunks = (
        [json.loads(e[6:]) for e in response.text.split("\n\n") if e.startswith("data: {")]
        if stream
        else [response.json()]
    )
    for row in rows:
        pieces = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == row.choice]
        shown = "".join((piece.get("delta") or piece.get("message") or {}).get("content") or "" for piece in pieces)
        assert shown == (row.reply["content"] or "")
        if body.get("return_token_ids"):
            assert [token for piece in pieces for token in piece.get("token_ids") or ()] == list(row.token_ids)
    if "tool_choice" in body:
        (call,) = rows[0].reply["tool_calls"]
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("pick", {"x": "a"})


def test_what_the_engine_objects_to_is_a_400(vllm_server: VllmServer, tmp_path: Path) -> None:
    with serve(tmp_path, StubEngine()) as gateway:
        write_table(gateway.settings, (vllm_server.url,), make_keys()[1], engine_key=vllm_server.api_key)
        long = gateway.chat(model="base", messages=[{"role": "user", "content": "word " * 3000}])
        assert long.status_code == 400
        assert "context length" in long.json()["error"]["message"]
        assert gateway.chat(model="base", max_tokens="many").json()["error"]["param"] == "max_tokens"
        assert gateway.chat(model="agent").status_code == 503, (
            "the table lists a version that this engine does not have"
        )
