"""The OpenAPI document. FastAPI writes the part of its own routes; this package adds the part of the raw routes.

Request fields come from the types that read them. Paths, answers and errors are written by hand.
"""

from typing import Any

from fastapi import FastAPI

from burnish.server.gateway.openapi import raw_routes, request_schemas, response_schemas

Tree = dict[str, Any]
_ABOUT = (
    "One endpoint to talk to an agent that learns from its use. "
    "docs/reference/http.md says in words what this document says in schemas."
)
# FastAPI's own errors; clients get the gateway's envelope instead
_HIDDEN = frozenset({"HTTPValidationError", "ValidationError"})


def install(app: FastAPI) -> None:
    """Make `app` publish the whole document instead of its own part."""
    own = app.openapi

    def whole() -> Tree:
        if app.openapi_schema is None:
            app.openapi_schema = merged(own())
        return app.openapi_schema

    app.openapi = whole  # type: ignore[method-assign]


def merged(admin: Tree) -> Tree:
    """The document for every route. `admin` is FastAPI's document for its own routes."""
    schemas = {name: schema for name, schema in admin["components"]["schemas"].items() if name not in _HIDDEN}
    return {
        "openapi": "3.1.0",
        "info": {**admin["info"], "description": _ABOUT},
        "paths": _joined(raw_routes.paths(), {path: _admin_path(item) for path, item in admin["paths"].items()}),
        "components": {
            "schemas": {**request_schemas.schemas(), **response_schemas.SCHEMAS, **schemas},
            "responses": response_schemas.ERRORS,
            "headers": response_schemas.HEADERS,
            "parameters": request_schemas.HEADERS,
            "securitySchemes": raw_routes.SCHEMES,
        },
    }


def _joined(raw: Tree, behind: Tree) -> Tree:
    """The paths of both parts. Some have methods in both."""
    return {path: raw.get(path, {}) | behind.get(path, {}) for path in raw | behind}


def _admin_path(item: Tree) -> Tree:
    """FastAPI's description with our errors, and with the key that every admin route needs."""
    return {method: _admin_operation(operation) for method, operation in item.items()}


def _admin_operation(operation: Tree) -> Tree:
    own = {status: answer for status, answer in operation["responses"].items() if status != "422"}
    errors = response_schemas.errors("400", "401", "403", "404", "409", "500", "503")
    return {**operation, "responses": {**own, **errors}, "security": raw_routes.ANY_KEY}
