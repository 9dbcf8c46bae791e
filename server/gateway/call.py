"""One request in any dialect: what to ask the engine and what to record.

A dialect (server/gateway/dialects/) turns a body into a Call and gives a Renderer that turns the engine's answer back.
Between the two, every request takes the same way (server/gateway/exchange.py): it is pinned, asked, recorded and
answered.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import msgspec

from burnish.records import Sampling
from burnish.server.gateway import passed_fields
from burnish.wire.chunks import Answer, Chunk

JsonObject = dict[str, msgspec.Raw]
Reply = tuple[int, bytes, list[tuple[bytes, bytes]]]
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class BodyLabels:
    """What a body says about its conversation, under any of the names that harnesses use."""

    session: str | None = None
    session_field: str | None = None
    turn_type: str | None = None
    is_done: object = None


NO_BODY_LABELS = BodyLabels()


@dataclass(slots=True)
class Call:
    """A request as the engine will see it.

    `body` holds the client's fields and the gateway's own as JSON text. Its destination decides what of it goes on
    (server/gateway/passed_fields.py). `messages` and `tools` are JSON arrays in chat form, as recorded. If a request
    has several prompts, `prompts` holds the messages of each. `render` makes the answer's Renderer from the pinned
    version's name and the request id. `ignored` names the fields that the client sent and that have no effect.
    `quoted_user` is the name that the request gave, `user` the proved user (server/gateway/exchange.py).
    `strict_tools` go to the engine in place of the body's tools, unless the engine refuses their schemas.
    """

    model: str
    is_stream: bool
    body: JsonObject
    messages: msgspec.Raw
    tools: msgspec.Raw | None
    sampling: Sampling
    render: "Callable[[str, str], Renderer]"
    n: int = 1
    user: str | None = None
    quoted_user: str | None = None
    said: BodyLabels = NO_BODY_LABELS
    path: str = CHAT
    prompts: tuple[msgspec.Raw, ...] = ()
    ignored: tuple[str, ...] = ()
    strict_tools: msgspec.Raw | None = None

    def for_engine(self, engine_model: str, tenant: str) -> bytes:
        """The body to send to the engine. The names of fields that it must not get join `ignored`."""
        kept, left_out = passed_fields.for_engine(self.path, self.body)
        self._ignore(left_out)
        tools = {} if self.strict_tools is None else {"tools": self.strict_tools}
        return msgspec.json.encode({"model": engine_model, "cache_salt": cache_salt(tenant), **kept, **tools})

    def for_remote(self, model: str) -> bytes:
        """The body to send to a remote model: OpenAI's own fields only. The names of the others join `ignored`."""
        kept, left_out = passed_fields.for_remote(self.body)
        self._ignore(left_out)
        return msgspec.json.encode({"model": model, **kept})

    def messages_of(self, choice: int) -> msgspec.Raw:
        """The messages that choice number `choice` replies to."""
        return self.prompts[choice * len(self.prompts) // self.n] if self.prompts else self.messages

    def _ignore(self, names: tuple[str, ...]) -> None:
        if names:
            self.ignored = tuple(dict.fromkeys([*self.ignored, *names]))


@lru_cache(maxsize=1024)
def cache_salt(tenant: str) -> str:
    """Keeps the engine's prefix cache apart by tenant: how soon a reply begins must not tell one what another asked.

    Burnish's own questions have no salt, so no client finds out about those either. A digest, because vLLM refuses some
    characters.
    """
    return hashlib.blake2b(tenant.encode(), digest_size=16).hexdigest()


class Renderer(Protocol):
    """Turns one engine answer into the client's dialect. Each request gets a new one."""

    def response_id(self, engine_id: str) -> str:
        """The id by which the client knows this response. It becomes the interaction's id, and feedback names it."""

    def chunk(self, data: bytes, chunk: Chunk) -> bytes:
        """What the client gets for one chunk of the engine's stream. `data` is its JSON text. May be empty."""

    def end(self) -> bytes:
        """What the client gets when the engine's stream is over."""

    def whole(self, data: bytes, answer: Answer) -> bytes:
        """The body that the client gets for an answer that is not streamed."""


class Dialect(Protocol):
    """One way to ask for a reply. `name` is stored with each turn."""

    name: str

    def read(self, body: bytes, headers: Mapping[bytes, str]) -> Call:
        """The request in `body`. Raises RequestError with the name of the field at fault."""

    def reply_to(self, error: BaseException, request_id: str) -> Reply:
        """Status, body and headers of the answer to a request that failed."""

    def frame_of(self, error: BaseException, request_id: str) -> bytes:
        """The last event of a stream that had already begun."""
