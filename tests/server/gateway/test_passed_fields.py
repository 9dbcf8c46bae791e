"""What a client may tell the engine: no field of a body steers vLLM or what is behind it, on any route."""

import json
import re
from typing import Any

import msgspec
import pytest
from gateways import HELLO, Running, error_of

from burnish.server.gateway import passed_fields

PLANTED = "planted"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/v1/embeddings": {"input": "hello"},
}
LITELLMS = (
    *("base_url", "api_base", "api_key", "extra_headers", "extra_body", "headers", "mock_response"),
    *("custom_llm_provider", "fallbacks", "callbacks", "model_list", "num_retries", "proxy_server_request"),
    *("aws_access_key_id", "aws_bedrock_runtime_endpoint", "vertex_credentials", "vertex_project", "hf_token"),
)
VLLMS = (
    *("guided_decoding_backend", "guided_regex", "lora_request", "prompt_embeds", "logits_processors"),
    *("kv_transfer_params", "ec_transfer_params", "vllm_xargs", "data_parallel_rank", "cache_salt", "priority"),
    *("request_id", "chat_template", "media_io_kwargs", "mm_processor_kwargs", "mm_payload", "return_mm_kwargs"),
    *("routed_experts_prompt_start", "return_prompt_text", "repetition_detection", "stream_interval", "messages_url"),
)
HOSTILE = dict.fromkeys((*LITELLMS, *VLLMS, "a_field_of_the_next_release"), PLANTED)


@pytest.mark.parametrize("path", BODIES)
def test_no_field_that_is_not_listed_reaches_the_engine(gateway: Running, path: str) -> None:
    with gateway.client() as client:
        response = client.post(path, json={"model": "agent", **BODIES[path], **HOSTILE})
    assert response.status_code == 200, response.text
    sent = gateway.engine.requests[-1]
    assert set(HOSTILE) & set(sent) == {"cache_salt"}  # the gateway's own
    assert PLANTED not in json.dumps(sent)
    assert set(response.headers["x-burnish-ignored"].split(", ")) <= set(HOSTILE)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_each_is_named_to_the_client(gateway: Running, path: str) -> None:
    with gateway.client() as client:
        for name in HOSTILE:
            response = client.post(path, json={"model": "agent", **BODIES[path], name: PLANTED})
            assert (response.status_code, response.headers.get("x-burnish-ignored")) == (200, name)
        usual = {"user": "ann", "store": True, "metadata": {"a": "b"}, "service_tier": "auto", "base_url": None}
        assert "x-burnish-ignored" not in client.post(path, json={"model": "agent", **BODIES[path], **usual}).headers


@pytest.mark.parametrize("path", BODIES)
def test_the_prefix_cache_is_kept_apart_by_tenant(gateway: Running, path: str) -> None:
    salts = []
    for key in (None, "talker", "limited", "stranger"):
        model = "theirs" if key == "stranger" else "agent"
        with gateway.client(key) as client:
            body = {"model": model, **BODIES[path], "cache_salt": PLANTED, "user": "ann"}
            assert client.post(path, json=body).status_code == 200
        salts.append(gateway.engine.requests[-1]["cache_salt"])
    ours, theirs = salts[0], salts[-1]
    assert salts == [ours, ours, ours, theirs]
    assert ours != theirs
    assert all(re.fullmatch("[0-9a-f]{32}", salt) for salt in salts)  # vLLM refuses `@` and `/` and long ones


def test_names_in_a_header_are_few_and_plain() -> None:
    body = dict.fromkeys((*(f"field_{n}" for n in range(100)), "a\r\nset-cookie: x", "ü"), msgspec.Raw(b"1"))
    kept, left_out = passed_fields.for_engine("/v1/chat/completions", body)
    assert kept == {}
    assert left_out == tuple(f"field_{n}" for n in range(passed_fields.MAX_NAMED))


def test_what_is_inside_stream_options_is_listed_too(gateway: Running) -> None:
    gateway.stream(stream_options={"include_usage": True, "include_obfuscation": False, "planted": PLANTED})
    assert gateway.engine.requests[-1]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"regex": "(a+)+" * 1000}, "structured_outputs.regex"),
        ({"grammar": 'root ::= "' + "a" * 70_000 + '"'}, "structured_outputs.grammar"),
        ({"json": {}, "whitespace_pattern": "a" * 5000}, "structured_outputs.whitespace_pattern"),
        ({"regex": "a+", "_backend": "outlines"}, "structured_outputs"),
        ({"regex": ["a+"]}, "structured_outputs.regex"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_grammars_are_bounded(shared: Running, path: str, given: dict[str, Any], param: str) -> None:
    n_before = len(shared.engine.requests)
    with shared.client() as client:
        error = error_of(client.post(path, json={"model": "agent", **BODIES[path], "structured_outputs": given}), 400)
    assert error["param"] in (param, None)
    assert len(shared.engine.requests) == n_before


def test_sampling_and_prompts_go_on_as_they_came(gateway: Running) -> None:
    given = {
        "seed": 12345678901234567,
        "top_k": 5,
        "stop": ["x"],
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
        "structured_outputs": {"regex": "a+"},
    }
    response = gateway.chat(**given)
    sent = gateway.engine.requests[-1]
    assert {name: sent[name] for name in given} == given
    assert "x-burnish-ignored" not in response.headers
