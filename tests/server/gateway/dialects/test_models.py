"""`/v1/models` through the clients of both makers: one answer, from which each reads its own fields."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import ModelInfo
from gateways import ENGINE_KEY, Running, serve
from openai.types import Model

from burnish.server.gateway.routing import page
from burnish.testing import StubEngine

NAMES = ["agent", "agent@v0", "agent@v1", "agent@v2", "second", "second@v0", "base"]


@pytest.fixture
def claude(shared: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=shared.url, api_key=shared.secrets["talker"], max_retries=0) as client:
        yield client


@pytest.fixture
def gpt(shared: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key=shared.secrets["talker"], max_retries=0) as client:
        yield client


def test_both_clients_list_the_same_models(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> None:
    listed = claude.models.list()
    assert [model.id for model in listed.data] == [model.id for model in gpt.models.list()] == NAMES
    assert (listed.has_more, listed.first_id, listed.last_id) == (False, "agent", "base")
    assert [model.id for model in claude.models.list()] == NAMES


def test_each_entry_is_whole_in_both_dialects(shared: Running) -> None:
    with shared.client("talker") as client:
        entries = client.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()["data"]
        assert entries[1] == client.get("/v1/models/agent@v0").json()
    for entry in entries:
        ModelInfo.model_validate(entry)
        Model.model_validate(entry, strict=True)


def test_both_clients_retrieve_a_model(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> None:
    theirs, ours = claude.models.retrieve("agent@v1"), gpt.models.retrieve("agent@v1")
    assert (theirs.type, theirs.id, theirs.display_name, theirs.lifecycle) == (
        "model",
        "agent@v1",
        "agent@v1",
        "active",
    )
    assert theirs.created_at == datetime.fromtimestamp(ours.created, UTC)
    assert (theirs.max_input_tokens, theirs.max_tokens) == (None, None)
    assert (ours.object, ours.id, ours.owned_by) == ("model", "agent@v1", "burnish")
    with pytest.raises(anthropic.NotFoundError, match="'agent@v9' does not exist"):
        claude.models.retrieve("agent@v9")


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_pages_follow_one_another(claude: anthropic.Anthropic, limit: int) -> None:
    assert [model.id for model in claude.models.list(limit=limit)] == NAMES
    pages = list(claude.models.list(limit=limit).iter_pages())
    assert [len(found.data) for found in pages] == [min(limit, 7 - at) for at in range(0, 7, limit)]
    backwards = [
        model.id for found in claude.models.list(limit=limit, before_id="base").iter_pages() for model in found.data
    ]
    assert sorted(backwards) == sorted(NAMES[:-1])


async def test_pages_follow_one_another_for_the_asynchronous_client(shared: Running) -> None:
    async with anthropic.AsyncAnthropic(base_url=shared.url, api_key=shared.secrets["talker"]) as client:
        assert [model.id async for model in client.models.list(limit=3)] == NAMES


@pytest.mark.parametrize(
    ("query", "shown", "has_more"),
    [
        (b"", NAMES, False),
        (b"limit=2", NAMES[:2], True),
        (b"after_id=agent%40v2", NAMES[4:], False),
        (b"after_id=agent%40v2&limit=2", NAMES[4:6], True),
        (b"after_id=base", [], False),
        (b"before_id=second&limit=3", NAMES[1:4], True),
        (b"before_id=agent", [], False),
        (b"after_id=agent&before_id=agent%40v2", NAMES[1:3], False),
        (b"lifecycle=active&x=%FF", NAMES, False),
    ],
)
def test_what_a_query_shows(query: bytes, shown: list[str], has_more: bool) -> None:
    assert page(NAMES, query) == (shown, has_more)


@pytest.mark.parametrize(
    "query",
    [{"limit": "0"}, {"limit": "1001"}, {"limit": "\u0663"}, {"limit": ""}, {"after_id": "gone"}, {"before_id": ""}],
)
def test_a_query_that_cannot_be_is_a_400_with_the_parameter(shared: Running, query: dict[str, Any]) -> None:
    with shared.client("talker") as client:
        response = client.get("/v1/models", params=query)
    assert (response.status_code, response.json()["error"]["param"]) == (400, *query)


def test_the_limit_that_is_set_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_ENGINE__MAX_MODEL_LEN", "4096")
    with StubEngine(api_key=ENGINE_KEY) as engine, serve(tmp_path, engine) as running:
        key = running.secrets["talker"]
        with anthropic.Anthropic(base_url=running.url, api_key=key, max_retries=0) as client:
            shown = client.models.retrieve("base")
    assert (shown.max_input_tokens, shown.max_tokens) == (4096, 4096)


def test_a_key_for_nothing_sees_an_empty_list() -> None:
    assert page([], b"limit=5") == ([], False)
