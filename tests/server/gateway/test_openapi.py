"""The OpenAPI document covers every route and only routes that exist, and all its references resolve."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi.routing import APIRoute

from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.server.gateway.admin import admin_app
from burnish.server.gateway.app import MODEL, MODEL_PATH, ROUTES

MESSAGES = "/v1/messages"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(state_dir=tmp_path_factory.mktemp("openapi"))


@pytest.fixture(scope="module")
def app(settings: Settings) -> Iterator[Any]:
    journal = prepare(settings)
    yield admin_app(settings, journal)
    journal.close()


@pytest.fixture(scope="module")
def document(app: Any) -> Any:
    return json.loads(json.dumps(app.openapi()))


def operations(document: Any) -> dict[tuple[str, str], Any]:
    return {
        (path, method): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(child)


def test_it_has_the_gateways_routes_and_no_others(app: Any, document: Any) -> None:
    raw = {(path, method) for path, answers in {**ROUTES, MODEL_PATH + "{id}": MODEL}.items() for method in answers}
    behind = {(route.path_format, method) for route in routes_of(app) for method in route.methods or ()}
    assert behind, "the admin routes were not found"
    assert {(path, method.upper()) for path, method in operations(document)} == raw | behind


def routes_of(app: Any) -> list[APIRoute]:
    """The routes that FastAPI describes, without its own pages."""
    return [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]


def test_every_reference_leads_somewhere_and_nothing_is_left_over(document: Any) -> None:
    used = {node["$ref"] for node in nodes(document) if "$ref" in node}
    for reference in used:
        place = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in place, reference
            place = place[step]
    kinds = ("schemas", "parameters", "headers")
    there = {f"#/components/{kind}/{name}" for kind in kinds for name in document["components"][kind]}
    assert there <= used


def test_the_schemas_are_schemas(document: Any) -> None:
    assert document["openapi"].startswith("3.1.")
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema.get("description") or schema["type"] == "object", name


def test_every_operation_is_whole(document: Any) -> None:
    found = operations(document)
    names = [operation["operationId"] for operation in found.values()]
    assert len(set(names)) == len(names)
    for (path, method), operation in found.items():
        is_health = path in {"/healthz", "/readyz"}
        assert bool(operation["security"]) != is_health, path
        assert {} not in operation["security"] or path.startswith("/v1/"), "only talking may need no key"
        assert ("requestBody" in operation) == (method == "post"), path
        if is_health:
            continue
        kind = "MessageError" if path.startswith(MESSAGES) else "Error"
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert answer["$ref"] == f"#/components/responses/{kind}{status}", path
        assert ("529" in operation["responses"]) == path.startswith(MESSAGES)


def test_bodies_may_hold_more_than_is_listed_but_for_those_that_may_not(document: Any) -> None:
    schemas = document["components"]["schemas"]
    closed = {
        name for name in schemas if name.endswith("Request") and schemas[name].get("additionalProperties") is False
    }
    assert not closed
    assert schemas["Opinion"]["additionalProperties"] is False
    assert schemas["MessageRequest"]["required"] == ["model", "messages", "max_tokens"]
    assert "max_tokens" not in schemas["CountRequest"]["required"]
    for refused in ("echo", "prompt_logprobs"):
        assert refused not in schemas["ChatRequest"]["properties"]
