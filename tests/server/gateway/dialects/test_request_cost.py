"""No body of a mebibyte takes long to read, however it is made up. What an engine would take long over is refused."""

import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from gateways import HELLO, Running, error_of

from burnish.errors import BurnishError
from burnish.server.gateway import embeddings
from burnish.server.gateway.dialects import chat, chat_fields, completions, media, responses
from burnish.server.gateway.dialects.messages.request import Translation
from burnish.server.gateway.dialects.messages.request import parse as parse_message
from burnish.server.gateway.feedback import parse as feedback
from tests.cost import large_bodies

MOST = 0.05
"""Seconds."""
READ: dict[str, Callable[[bytes], Any]] = {
    "/v1/chat/completions": chat.parse,
    "/v1/completions": completions.parse,
    "/v1/embeddings": embeddings.parse,
    "/v1/responses": lambda body: responses.Responses().read(body, {}),
    "/v1/messages": parse_message,
    "/v1/messages/count_tokens": lambda body: Translation(body).counted(),
    "/v1/feedback": feedback.parse,
    "/v1/feedback/batch": feedback.parse_batch,
}
BODIES = list(large_bodies())


@pytest.mark.parametrize("number", range(len(BODIES)), ids=[name for _, name, _ in BODIES])
def test_a_body_of_a_mebibyte_is_read_or_refused_at_once(number: int) -> None:
    path, _, body = BODIES[number]
    text = json.dumps({"model": "agent", **body}, separators=(",", ":")).encode()
    assert 0.6 * 2**20 < len(text) <= 2**20
    assert min(seconds(READ[path], text) for _ in range(3)) < MOST


def seconds(read: Callable[[bytes], Any], body: bytes) -> float:
    began = time.thread_time()
    with suppress(BurnishError):
        read(body)
    return time.thread_time() - began


@pytest.fixture(autouse=True)
def collected_as_in_a_gateway() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    yield
    gc.set_threshold(*before)


FUNCTION = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"x": "y" * 131_072}}}
LONG = {"type": "object", "description": "y" * 131_072}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("completions", {"prompt": ["x"] * 129}, "prompt"),
        ("completions", {"prompt": ["x"] * 65, "n": 2}, "prompt"),
        ("embeddings", {"input": ["x"] * 2049}, "input"),
        ("chat/completions", {"messages": HELLO * 10_001}, "messages"),
        ("chat/completions", {"messages": HELLO, "tools": [{"type": "function"}] * 1025}, "tools"),
        ("chat/completions", {"messages": HELLO, "tools": [FUNCTION]}, "tools"),
        ("chat/completions", {"messages": HELLO, "response_format": {"schema": LONG}}, "response_format"),
        ("chat/completions", {"messages": HELLO, "structured_outputs": {"json": LONG}}, "structured_outputs"),
        (
            "completions",
            {"prompt": "x", "structured_outputs": {"choice": ["x"] * 1025}},
            "structured_outputs.choice",
        ),
        (
            "completions",
            {"prompt": "x", "structured_outputs": {"choice": ["x" * 131_072]}},
            "structured_outputs.choice[0]",
        ),
        ("completions", {"prompt": "x", **{f"f{n}": 1 for n in range(4096)}}, None),
        ("responses", {"input": HELLO * 10_001}, "input"),
        ("responses", {"input": "x", "tools": [{"type": "function", "name": "f"}] * 1025}, "tools"),
        ("responses", {"input": "x", "text": {"format": {"type": "json_schema", "schema": LONG}}}, "text"),
    ],
)
def test_what_costs_an_engine_much_has_a_bound(
    shared: Running, path: str, body: dict[str, Any], param: str | None
) -> None:
    n_before = len(shared.engine.requests)
    with shared.client() as client:
        assert error_of(client.post(f"/v1/{path}", json={"model": "agent", **body}), 400)["param"] == param
    assert len(shared.engine.requests) == n_before


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_an_output_format_of_anthropics_has_a_bound(shared: Running, name: str) -> None:
    form = {"type": "json_schema", "schema": LONG}
    body = {"model": "agent", "max_tokens": 5, "messages": HELLO}
    with shared.client() as client:
        answer = client.post("/v1/messages", json={**body, name: {"format": form} if name == "output_config" else form})
    assert answer.status_code == 400 and answer.json()["error"]["message"].startswith(f"{name}: ")


def test_a_forced_tool_with_a_long_schema_stays_free(shared: Running) -> None:
    """The client has not asked for a grammar of it."""
    tool = {"type": "function", "function": {"name": "f", "parameters": LONG}}
    given = {"tools": [tool], "tool_choice": "required"}
    assert shared.chat(**given).status_code == 200
    assert "strict" not in shared.engine.requests[-1]["tools"][0]["function"]


def test_as_many_as_are_allowed_pass(shared: Running) -> None:
    with shared.client() as client:
        answer = client.post("/v1/completions", json={"model": "agent", "prompt": ["x"] * 64, "n": 2, "max_tokens": 1})
    assert (answer.status_code, len(answer.json()["choices"])) == (200, 128)
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}] * 2000
    assert shared.chat(messages=[{"role": "user", "content": images}]).status_code == 200
    assert media.MAX_VALUES > 2 * 2000 and chat_fields.MAX_CHOICES == 128
