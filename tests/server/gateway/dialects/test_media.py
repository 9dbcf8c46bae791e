"""Media in messages are data: no address reaches an engine, a provider or a record."""

import json
from typing import Any

import msgspec
import pytest
from gateways import Running, error_of

from burnish.errors import RequestError
from burnish.server.gateway.dialects import chat

FAR = "http://169.254.169.254/latest/meta-data/"
DATA = "data:image/png;base64,AAAA"
PARTS: list[tuple[Any, str]] = [
    ({"type": "image_url", "image_url": {"url": FAR}}, "image_url.url"),
    ({"type": "image_url", "image_url": {"url": " " + FAR}}, "image_url.url"),
    ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "image_url.url"),
    ({"type": "image_url", "image_url": {"url": "//internal/x.png"}}, "image_url.url"),
    ({"type": "image_url", "image_url": FAR}, "image_url"),
    ({"image_url": FAR, "uuid": "x"}, "image_url"),
    ({"type": "input_image", "image_url": FAR}, "image_url"),
    ({"type": "video_url", "video_url": {"url": FAR}}, "video_url.url"),
    ({"type": "audio_url", "audio_url": {"url": FAR}}, "audio_url.url"),
    ({"type": "file", "file": {"file_id": FAR}}, "file.file_id"),
    ({"type": "file", "file": {"file_data": "GS://bucket/x"}}, "file.file_data"),
    ({"type": "image", "source": {"type": "url", "url": FAR}}, "source.url"),
    ({"type": "a_kind_of_the_next_release", "source": [{"at": FAR}]}, "source[0].at"),
]


def said(part: Any, n_before: int = 0) -> list[Any]:
    return [{"role": "user", "content": [{"type": "text", "text": "x" * n_before}, part]}]


@pytest.mark.parametrize(("part", "place"), PARTS, ids=str)
@pytest.mark.parametrize("n_before", [0, 100_000])
def test_an_address_is_a_400_that_names_the_field(shared: Running, part: Any, place: str, n_before: int) -> None:
    n_requests = len(shared.engine.requests)
    error = error_of(shared.chat(messages=said(part, n_before)), 400)
    assert (error["param"], error["code"]) == (f"messages[0].content[1].{place}", "unsupported")
    assert "data:" in error["message"]
    assert len(shared.engine.requests) == n_requests


def test_an_escaped_name_is_the_same_name(shared: Running) -> None:
    text = json.dumps({"model": "agent", "messages": said({"type": "image_url", "image_url": {"url": FAR}})})
    for name in (r"\u0069mage_url", r"image\u005furl", r"image_ur\u006c"):
        with shared.client() as client:
            asked = text.replace('"image_url": {', f'"{name}": {{')
            assert error_of(client.post("/v1/chat/completions", content=asked), 400)["code"] == "unsupported"


@pytest.mark.parametrize("role", ["system", "assistant", "tool"])
def test_nobody_else_in_the_history_may_name_one(shared: Running, role: str) -> None:
    messages = [{"role": role, "content": [{"type": "image_url", "image_url": {"url": FAR}}]}, *said(DATA)]
    assert error_of(shared.chat(messages=messages), 400)["param"] == "messages[0].content[0].image_url.url"


def test_the_other_dialects_name_their_own_field(shared: Running) -> None:
    image = {"type": "image", "source": {"type": "url", "url": FAR}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [image]}
    with shared.client() as client:
        for content, place in (([image], "content[0].source.url"), ([result], "content[0].content[0].source.url")):
            asked = {"model": "agent", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
            answer = client.post("/v1/messages", json=asked)
            assert answer.status_code == 400
            assert f"messages[0].{place}: " in answer.json()["error"]["message"]
        item = {"role": "user", "content": [{"type": "input_image", "image_url": FAR}]}
        refused = client.post("/v1/responses", json={"model": "agent", "input": [item]})
        assert error_of(refused, 400)["param"] == "input[0].content[0].image_url"


def test_data_and_words_about_addresses_pass(gateway: Running) -> None:
    parts = [
        {"type": "text", "text": FAR},
        {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "DATA:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
        FAR,
    ]
    messages = [
        {"role": "system", "content": FAR},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    assert gateway.chat(messages=messages).status_code == 200
    assert gateway.engine.requests[-1]["messages"] == messages


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (7, "messages[0].content[1]"),
        ({"image_url": json.loads("[" * 20 + "]" * 20)}, None),
    ],
)
def test_odd_parts_are_a_400(part: Any, param: str | None) -> None:
    body = msgspec.json.encode({"model": "agent", "messages": said(part)})
    with pytest.raises(RequestError) as refused:
        chat.parse(body)
    assert param is None or refused.value.param == param


def test_parts_nested_without_end_are_a_400() -> None:
    body = msgspec.json.encode({"model": "agent", "messages": said({"source": "NEST"})})
    with pytest.raises(RequestError):
        chat.parse(body.replace(b'"NEST"', b"[" * 100_000 + b"]" * 100_000))
