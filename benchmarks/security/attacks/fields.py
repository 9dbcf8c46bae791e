"""Attacks by fields of a body: vLLM's own controls, and addresses that somebody else would fetch."""

import json
from functools import partial
from typing import Any

from benchmarks.security.attacks import add, attack
from benchmarks.security.attacks.stand import HELLO, Stand

PLANTED = "planted-7c1"
ENGINE_FIELDS = (
    *("chat_template", "mm_processor_kwargs", "lora_request", "kv_transfer_params", "vllm_xargs", "logits_processors"),
    *("priority", "request_id", "prompt_embeds", "media_io_kwargs", "data_parallel_rank", "cache_salt"),
    *("guided_decoding_backend", "ec_transfer_params"),
)
"""Fields of vLLM's requests that steer the server."""


def _reaches_engine(name: str, stand: Stand) -> bool:
    before = len(stand.engine.requests)
    stand.chat(fields={name: PLANTED})
    return any(PLANTED in json.dumps(body) for body in stand.engine.requests[before:])


for _name in ENGINE_FIELDS:
    add(f"the engine is steered by {_name}", partial(_reaches_engine, _name))


@attack("the engine compiles a grammar of a megabyte")
def _grammar(stand: Stand) -> bool:
    before = len(stand.engine.requests)
    stand.chat(structured_outputs={"grammar": 'root ::= "a"\n' * 80_000})
    return any("structured_outputs" in body for body in stand.engine.requests[before:])


@attack("one request asks for a million replies")
def _choices(stand: Stand) -> bool:
    return stand.chat(n=1_000_000).status_code == 200


@attack("one completion has two thousand prompts")
def _prompts(stand: Stand) -> bool:
    body = {"model": "agent", "prompt": [""] * 2000, "max_tokens": 1}
    before = len(stand.engine.requests)
    stand.ask("POST", "/v1/completions", "talker", body)
    return len(stand.engine.requests) > before


@attack("the engine makes a grammar of a schema of a megabyte")
def _schema(stand: Stand) -> bool:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(40_000)}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    before = len(stand.engine.requests)
    stand.chat(response_format=form)
    stand.chat(structured_outputs={"choice": [f"choice {n}" for n in range(50_000)]})
    return len(stand.engine.requests) > before


_URL = "http://169.254.169.254/latest/meta-data"
_PARTS: dict[str, Any] = {
    "image_url": {"type": "image_url", "image_url": {"url": _URL}},
    "video_url": {"type": "video_url", "video_url": {"url": _URL}},
    "audio_url": {"type": "audio_url", "audio_url": {"url": _URL}},
    "a file of the machine": {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
}
_BODIES: dict[str, tuple[str, Any]] = {
    **{
        f"chat {name}": ("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]})
        for name, part in _PARTS.items()
    },
    "messages image": (
        "/v1/messages",
        {
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": _URL}}]}],
        },
    ),
    "messages document": (
        "/v1/messages",
        {
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": _URL}}]}],
        },
    ),
    "responses image": (
        "/v1/responses",
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": _URL}]}]},
    ),
    "responses file": (
        "/v1/responses",
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": _URL}]}]},
    ),
}


def _is_fetched(path: str, body: Any, stand: Stand) -> bool:
    before = len(stand.engine.requests)
    stand.ask("POST", path, "talker", {"model": "agent", **body})
    sent = json.dumps(stand.engine.requests[before:])
    return _URL in sent or "file:///etc" in sent


for _name, (_path, _body) in _BODIES.items():
    add(f"an address is fetched: {_name}", partial(_is_fetched, _path, _body))


@attack("a header is put into the answer through the model's name")
def _header(stand: Stand) -> bool:
    answer = stand.ask("POST", "/v1/chat/completions", "talker", {"model": "x\r\nx-evil: 1", "messages": HELLO})
    return "x-evil" in answer.headers


@attack("a header is put into the answer through an ignored field's name")
def _ignored(stand: Stand) -> bool:
    return "x-evil" in stand.chat(fields={"a\r\nx-evil: 1": 1}).headers
