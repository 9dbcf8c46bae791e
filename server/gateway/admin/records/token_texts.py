"""The tokens of a reply as text, by the engine's own tokenizer. A token with a part of a character is shown as `�`."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from burnish import serving_table
from burnish.adapters.serving.prepare import routes_file
from burnish.config import BASE_NAME, Settings
from burnish.errors import EngineUnavailable, NotFound
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.journal.turns import from_bytes
from burnish.keys import engine_key

MOST = 600
"""Tokens of a reply that are told."""
AT_ONCE = 8
SECONDS = 5.0
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def tokens_of(settings: Settings, journal: Journal, interaction_id: str) -> list[dict[str, object]]:
    """The reply's first `MOST` tokens: `id`, `text` and `logprob`. Raises NotFound, or EngineUnavailable."""
    with journal.read() as session:
        row = session.get(InteractionRow, interaction_id)
        if row is None:
            raise NotFound(f"there is no turn {interaction_id[:200]!r} in the journal", code="turn_not_found")
        ids, logprobs = list(from_bytes("i", row.token_ids))[:MOST], list(from_bytes("f", row.logprobs))
    texts = _texts(*_engine(settings), ids)
    return [
        {"id": token, "text": texts[token], "logprob": round(logprobs[place], 4) if place < len(logprobs) else None}
        for place, token in enumerate(ids)
    ]


def _engine(settings: Settings) -> tuple[str, str]:
    """URL and key of an engine: as the gateways know them, or by the settings if nothing was ever started."""
    file = routes_file(settings)
    routes = serving_table.watch(file).current() if file.exists() else None
    if routes is None or not routes.engines:
        return settings.engine_urls[0], engine_key(settings)
    return routes.engines[0], routes.engine_key


def _texts(url: str, key: str, ids: Sequence[int]) -> dict[int, str]:
    """The text of each token. Every one is asked alone, because only so their borders are known."""
    wanted = list(dict.fromkeys(ids))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(wanted, pool.map(lambda token: _text(url, key, token), wanted), strict=True))


def _text(url: str, key: str, token: int) -> str:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    body = json.dumps({"model": BASE_NAME, "tokens": [token]}).encode()
    try:
        asked = urllib.request.Request(f"{url.rstrip('/').removesuffix('/v1')}/detokenize", data=body, headers=headers)
        with _open(asked, timeout=SECONDS) as answer:
            return str(json.load(answer)["prompt"])
    except (OSError, ValueError, KeyError, urllib.error.URLError) as error:
        raise EngineUnavailable(f"the engine did not tell its tokens' text: {error}") from error
