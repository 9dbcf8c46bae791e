"""`/v1/completions`: text completions, relayed like chats. A prompt is recorded as one user message."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.call import Call, JsonObject, Reply
from burnish.server.gateway.dialects import chat_fields as common
from burnish.server.gateway.dialects.chat_fields import Common
from burnish.server.gateway.http import error_envelope
from burnish.wire.chunks import Answer, Chunk

PATH = "/v1/completions"
NULL = msgspec.Raw(b"null")
_Ids = Annotated[list[int], msgspec.Meta(min_length=1)]
_prompt_decoder = msgspec.json.Decoder(str | Annotated[list[str | int | _Ids], msgspec.Meta(min_length=1)])


class Fields(Common):
    """The fields of a text completion that Burnish reads, except `prompt`."""

    logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    suffix: str | None = None
    best_of: int | None = None


def parse(body: bytes) -> Call:
    """The call in a text completion's body. Raises RequestError with the name of the field at fault."""
    fields, raw = common.parse(body, Fields, ("prompt",))
    if "prompt" not in raw:
        raise RequestError("prompt: missing required field `prompt`", param="prompt", code="invalid_value")
    if fields.suffix or (fields.best_of or 1) > 1:
        param = "suffix" if fields.suffix else "best_of"
        raise RequestError(f"{param}: not supported by the engine", param=param, code="unsupported")
    read = prompts("prompt", raw["prompt"])
    n_each = fields.n or 1
    return Call(
        model=fields.model,
        is_stream=bool(fields.stream),
        body=common.recorded(raw, fields, msgspec.Raw(b"%d" % (fields.logprobs or 0))),
        messages=_message(read[0]),
        prompts=tuple(map(_message, read)),
        tools=None,
        sampling=common.sampling_of(fields, is_constrained=common.is_grammar(fields)),
        n=n_each * len(read),
        quoted_user=fields.user,
        said=common.said_of(fields),
        path=PATH,
        render=lambda model, request_id: CompletionRenderer(fields, model),
    )


def prompts(name: str, value: msgspec.Raw) -> list[str | list[int]]:
    """Each prompt in the field `name`. OpenAI allows a text, a list of texts, token ids, or a list of those."""
    prompt: str | list[str | int | list[int]] = common.check(name, value, _prompt_decoder)
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(item, int) for item in prompt):
        return [[item for item in prompt if isinstance(item, int)]]
    texts = [item for item in prompt if not isinstance(item, int)]
    if len(texts) < len(prompt) or len({type(item) for item in texts}) > 1:
        raise RequestError(f"{name}: expected texts or token ids, got both", param=name, code="invalid_value")
    return texts


def _message(prompt: str | list[int]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode([{"role": "user", "content": prompt}]))


class CompletionRenderer:
    """Removes from each chunk what was added for the record."""

    def __init__(self, fields: Fields, model: str) -> None:
        self._name = msgspec.Raw(msgspec.json.encode(model))
        self._wants_ids = bool(fields.return_token_ids)
        self._wants_logprobs = fields.logprobs is not None
        self._wants_usage = fields.wants_usage

    def response_id(self, engine_id: str) -> str:
        return engine_id

    def chunk(self, data: bytes, chunk: Chunk) -> bytes:
        tree = _tree(data)
        if not self._wants_usage:
            tree.pop("usage", None)
        is_needed = self._strip(tree, chunk) or "usage" in tree or self._wants_ids
        return b"data: " + msgspec.json.encode(tree) + b"\n\n" if is_needed else b""

    def end(self) -> bytes:
        return b"data: [DONE]\n\n"

    def whole(self, data: bytes, answer: Answer) -> bytes:
        tree = _tree(data)
        self._strip(tree, answer)
        return msgspec.json.encode(tree)

    def _strip(self, tree: JsonObject, chunk: Answer) -> bool:
        tree["model"] = tree["system_fingerprint"] = self._name
        choices = _choices(tree["choices"])
        for choice in choices:
            if not self._wants_ids:
                choice.pop("token_ids", None)
                choice.pop("prompt_token_ids", None)
            if not self._wants_logprobs:
                choice["logprobs"] = NULL
        tree["choices"] = msgspec.Raw(msgspec.json.encode(choices))
        return any(choice.text or choice.finish_reason for choice in chunk.choices) or (
            self._wants_logprobs and bool(chunk.choices)
        )


class Completions:
    """The dialect."""

    name = "completions"

    def read(self, body: bytes, headers: Mapping[bytes, str]) -> Call:
        return parse(body)

    def reply_to(self, error: BaseException, request_id: str) -> Reply:
        return error_envelope.reply_to(error, request_id)

    def frame_of(self, error: BaseException, request_id: str) -> bytes:
        return error_envelope.frame_of(error, request_id)


_tree = msgspec.json.Decoder(JsonObject).decode
_choices = msgspec.json.Decoder(list[JsonObject]).decode
