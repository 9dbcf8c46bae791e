"""`/v1/completions`: text completions, relayed like chats. A prompt is recorded as one user message."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

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
_LISTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list[_Ids])
_KINDS: tuple[tuple[re.Pattern[bytes], msgspec.json.Decoder[Any]], ...] = (
    (re.compile(rb'\s*\[\s*"'), msgspec.json.Decoder(list[str])),
    (re.compile(rb"\s*\[\s*-?\d"), msgspec.json.Decoder(list[int])),
    (re.compile(rb"\s*\[\s*\["), _LISTS),
)
_other_decoder = msgspec.json.Decoder(str | Annotated[list[str | int | list[int]], msgspec.Meta(min_length=1)])


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
    n_each = fields.n or 1
    read = prompts("prompt", raw["prompt"], common.MAX_CHOICES // n_each)
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


def prompts(name: str, value: msgspec.Raw, most: int) -> list[str] | list[list[int]]:
    """Each prompt in the field `name`. OpenAI allows a text, a list of texts, token ids, or a list of those.

    The first element says which of these it is, and nothing is kept of more than `most`.
    """
    decoder = next((decoder for begin, decoder in _KINDS if begin.match(value)), _other_decoder)
    n = bytes(value).count(b"[") - 1 if decoder is _LISTS else 0  # a list of many small lists takes long to read
    if n <= most:
        read: Any = common.check(name, value, decoder)
        found = [read] if isinstance(read, str) or isinstance(read[0], int) else read
        n = len(found)
    if n > most:
        raise RequestError(f"{name}: got {n:,} prompts, expected at most {most:,}", param=name, code="invalid_value")
    return found


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
