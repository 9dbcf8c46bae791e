"""Requests that the OpenAPI document allows or forbids go to the real gateway: no 5xx, and answers of the right form.

The engine is the stub, a real journal stands behind the admin routes, and the key has all scopes. Random model names
would all end as a 404, so well-formed names are replaced by existing ones. The suite's own runs are the same every
time. With `BURNISH_FUZZ=2000`, each operation gets that number of examples, new ones in every run.
"""

import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import schemathesis
from gateways import ENGINE_KEY, Running, serve
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks

from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.records import VersionState
from burnish.server.gateway.admin import admin_app
from burnish.testing import StubEngine

pytestmark = pytest.mark.fuzz
schemathesis.serializer.alias("application/x-tar", "application/octet-stream")
N_EXAMPLES = int(os.environ.get("BURNISH_FUZZ", "0"))
AGENT = "agent"
PROMISES = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The gateway with the admin routes, and three versions without files."""
    folder = tmp_path_factory.mktemp("fuzz")
    own = Settings(state_dir=folder)
    journal = prepare(own)
    with journal.write() as session:
        for number in (1, 2, 3):
            lifecycle.announce(session, AGENT, number, parent=0, step_id=None, digest=f"d{number}")
        for number in (2, 3):  # the second is loaded, the third is not
            lifecycle.version(session, AGENT, number).state = VersionState.RETIRED
    stub = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"})
    with stub, serve(folder, stub, fallback=admin_app(own, journal)) as running:
        yield running
    journal.close()


# collected before there is a gateway: the document needs no journal, only the routes do
document = schemathesis.openapi.from_dict(admin_app(Settings(), Mock()).openapi(), config=SchemathesisConfig())


@document.parametrize()
@settings(
    max_examples=N_EXAMPLES or 12,
    derandomize=not N_EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_is_too_much(case: schemathesis.Case, whole: Running) -> None:
    name_what_exists(case)
    key = whole.secrets["admin"]
    response = case.call(base_url=whole.url, headers={"authorization": f"Bearer {key}"}, timeout=20)
    case.validate_response(response, checks=PROMISES)
    if response.status_code >= 400 and case.method != "HEAD" and case.path != "/readyz":
        assert_own_error(case.path, response.json())
    if response.headers["content-type"][0].startswith("text/event-stream"):
        assert "event: error" not in response.text and 'data: {"error"' not in response.text, response.text


def name_what_exists(case: schemathesis.Case) -> None:
    body = case.body
    if isinstance(body, dict) and isinstance(model := body.get("model"), str) and 0 < len(model) <= 256:
        body["model"] = ("agent", "agent@v1", "base")[len(model) % 3]
    for name in ("agent", "id"):
        if isinstance(given := case.path_parameters.get(name), str) and len(given) % 2:
            case.path_parameters[name] = AGENT


def assert_own_error(path: str, tree: Any) -> None:
    """The envelope of the path's dialect."""
    if path.startswith("/v1/messages"):
        assert set(tree) == {"type", "error", "request_id"}, tree
        assert set(tree["error"]) == {"type", "message"}, tree
    else:
        assert set(tree) == {"error"}, tree
        assert set(tree["error"]) == {"message", "type", "param", "code"}, tree
