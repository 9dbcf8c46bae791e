"""Embeddings pass through: the engine's answer under the client's model name, refusals with helpful messages."""

from typing import Any

import pytest
from aiohttp import web
from gateways import ENGINE_KEY, Running, error_of, serve

from burnish.testing import StubEngine

PATH = "/v1/embeddings"


def embed(gateway: Running, key: str | None = None, **body: Any) -> Any:
    with gateway.client(key) as client:
        return client.post(PATH, json={"model": "agent", "input": "hello"} | body)


def test_vectors_come_back_under_the_clients_name(gateway: Running) -> None:
    answer = embed(gateway, input=["one", "three"], dimensions=8)
    assert answer.status_code == 200, answer.text
    tree = answer.json()
    assert (tree["object"], tree["model"], len(tree["data"])) == ("list", "agent", 2)
    with_version = embed(gateway, model="agent@v2", input=["one", "three"]).json()
    assert (
        with_version["data"] == tree["data"] != embed(gateway, model="agent@v1", input=["one", "three"]).json()["data"]
    )
    assert not gateway.interactions


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": 7}, "model"),
        ({"model": ""}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": {"text": "x"}}, "input"),
        ({"input": ["text", 7]}, "input[1]"),
    ],
)
def test_wrong_fields_are_named(shared: Running, change: dict[str, Any], param: str) -> None:
    assert error_of(embed(shared, **change), 400)["param"] == param


def test_who_may_ask_for_which_model(shared: Running) -> None:
    assert error_of(embed(shared, model="nobody"), 404)["code"] == "model_not_found"
    assert error_of(embed(shared, "stranger"), 404)["code"] == "model_not_found"
    assert error_of(embed(shared, "voter"), 403)["code"] == "wrong_scope"
    with shared.client() as client:
        assert error_of(client.post(PATH, json={"model": "agent"}), 400)["param"] == "input"
        assert error_of(client.post(PATH, content=b"{"), 400)["code"] == "invalid_json"
        assert error_of(client.get(PATH), 405)["code"] == "method_not_allowed"


class Refusing(StubEngine):
    """An engine that answers every request for embeddings with one status and text."""

    answer = (404, '{"detail": "Not Found"}')

    async def _embed(self, request: web.Request) -> web.Response:
        status, text = self.answer
        return web.Response(status=status, text=text, content_type="application/json")


NO_ROUTE = (404, '{"detail": "Not Found"}')
NO_TASK = (501, '{"error": {"message": "The model does not support Embeddings API", "type": "NotImplementedError"}}')
NOT_LOADED = (404, '{"error": {"message": "The model `agent@v2` does not exist.", "type": "NotFoundError"}}')


@pytest.mark.parametrize(
    ("refusal", "status", "words"),
    [
        (NO_ROUTE, 400, "no embeddings"),
        (NO_TASK, 400, "no embeddings"),
        ((400, '{"error": {"message": "too long"}}'), 400, "too long"),
        (NOT_LOADED, 503, "try again"),
        ((500, "boom"), 503, "try again"),
    ],
)
def test_an_engine_that_refuses(tmp_path: Any, refusal: tuple[int, str], status: int, words: str) -> None:
    stub = Refusing(api_key=ENGINE_KEY)
    stub.answer = refusal
    with stub, serve(tmp_path, stub) as gateway:
        error = error_of(embed(gateway), status)
    assert words in error["message"]
    assert (error["code"] == "unsupported") == (words == "no embeddings")
