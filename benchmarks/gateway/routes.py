"""The share of eligible turns that are trainable, route by route, through the clients that people use.

Every route is asked whole and streamed, with text and with tool calls. A turn is eligible if its sampling can be
reproduced and its client waited for its end. This is true of all turns here. A turn is trainable if the ingester finds
no fault in it.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
from sqlalchemy import select

from benchmarks.gateway import ours
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.server.ingest.ingester import Ingester
from burnish.testing import Scripted, StubEngine

N_TURNS = 30  # of each kind
_SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}


def measure(folder: Path, port: int) -> dict[str, float]:
    """The trainable share by route and form of the answer, for example `chat, streamed`."""
    eligible: Counter[str] = Counter()
    ids: dict[str, str] = {}
    with StubEngine(_reply, needs_loaded=False) as engine, ours.gateway(folder, port, engine.url) as (_, settings):
        url = f"http://127.0.0.1:{port}"
        key = ours.talking_key(settings)
        with (
            openai.OpenAI(base_url=f"{url}/v1", api_key=key) as gpt,
            anthropic.Anthropic(base_url=url, api_key=key) as claude,
        ):
            for name, ask in _ways(gpt, claude).items():
                for n in range(N_TURNS):
                    ids[ask(f"{name} {n}: please look" if n % 2 else f"{name} {n}: hello")] = name
                    eligible[name] += 1
    journal = Journal.open(settings.journal_url)
    Ingester(journal, settings.segments_dir, session_timeout=1e9).run_once()
    trainable: Counter[str] = Counter()
    with journal.read() as session:
        for row in session.scalars(select(InteractionRow)):
            is_sound = row.skip_reason is None and len(row.token_ids) == len(row.logprobs) > 0
            trainable[ids[row.interaction_id]] += is_sound
    journal.close()
    return {name: trainable[name] / n for name, n in eligible.items()}


def _reply(body: dict[str, Any], choice: int) -> Scripted:
    if "messages" in body and body.get("tools") and "look" in str(body["messages"][-1].get("content")):
        return Scripted("So: ", [("look", '{"at": "a"}'), ("look", '{"at": "b"}')])
    return Scripted("Grüße, and a 🙂 to you.")


def _ways(gpt: openai.OpenAI, claude: anthropic.Anthropic) -> dict[str, Callable[[str], str]]:
    """The ways to ask. Each returns the response id."""
    chat_tools: Any = [{"type": "function", "function": {"name": "look", "parameters": _SCHEMA}}]
    flat_tools: Any = [{"type": "function", "name": "look", "parameters": _SCHEMA, "strict": False}]
    own_tools: Any = [{"name": "look", "input_schema": _SCHEMA}]

    def chat(text: str) -> str:
        messages: Any = [{"role": "user", "content": text}]
        return gpt.chat.completions.create(model="agent", messages=messages, tools=chat_tools).id

    def chat_streamed(text: str) -> str:
        messages: Any = [{"role": "user", "content": text}]
        chunks = list(gpt.chat.completions.create(model="agent", messages=messages, tools=chat_tools, stream=True))
        return chunks[-1].id

    def completion(text: str) -> str:
        return gpt.completions.create(model="agent", prompt=text).id

    def completion_streamed(text: str) -> str:
        return list(gpt.completions.create(model="agent", prompt=text, stream=True))[-1].id

    def response(text: str) -> str:
        return gpt.responses.create(model="agent", input=text, tools=flat_tools).id

    def response_streamed(text: str) -> str:
        last: Any = list(gpt.responses.create(model="agent", input=text, tools=flat_tools, stream=True))[-1]
        return str(last.response.id)

    def message(text: str) -> str:
        said: Any = [{"role": "user", "content": text}]
        return claude.messages.create(model="agent", max_tokens=200, messages=said, tools=own_tools).id

    def message_streamed(text: str) -> str:
        said: Any = [{"role": "user", "content": text}]
        with claude.messages.stream(model="agent", max_tokens=200, messages=said, tools=own_tools) as stream:
            return stream.get_final_message().id

    return {
        "chat": chat,
        "chat, streamed": chat_streamed,
        "completions": completion,
        "completions, streamed": completion_streamed,
        "responses": response,
        "responses, streamed": response_streamed,
        "messages": message,
        "messages, streamed": message_streamed,
    }
