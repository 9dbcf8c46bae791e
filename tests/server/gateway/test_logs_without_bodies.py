"""No body reaches the log, whatever fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from burnish.server.gateway.engines.engines import engine_error
from burnish.server.gateway.turn import Turn
from burnish.testing import StubEngine
from burnish.testing.stub_engine import Failure
from tests.server.gateway.gateways import ENGINE_KEY, serve

SECRET = "planted-3f9c1d"
BODY = {"messages": [{"role": "user", "content": f"look at {SECRET}"}]}


@pytest.mark.parametrize("failure", [None, *Failure])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_request_leaves_no_words_in_the_log(tmp_path: Path, failure: Failure | None, is_stream: bool) -> None:
    loaded = {"agent@v1": "/a/1", "agent@v2": "/a/2"}
    with capture_logs() as logged, StubEngine(api_key=ENGINE_KEY, loaded=loaded, failure=failure) as stub:
        stub.replies = (f"a reply about {SECRET}",)
        with serve(tmp_path, stub) as gateway:
            gateway.chat("talker", stream=is_stream, **BODY)
            gateway.chat("talker", model=f"model-{SECRET}")
            with gateway.client("talker") as client:
                client.post("/v1/chat/completions", content=f'{{"model": "agent", "messages": "{SECRET}"'.encode())
                client.post("/v1/messages", json={"model": "agent", "messages": SECRET})
            with gateway.client("voter") as client:
                client.post("/v1/feedback", json={"target": "x", "comment": SECRET, "more": SECRET})
    assert logged or failure is not Failure.REFUSE
    assert SECRET not in json.dumps(logged, default=repr)


def test_what_an_engine_says_stays_in_its_own_log() -> None:
    class Unreadable(Turn):
        def __init__(self) -> None:
            self._request_id = "r"

    with capture_logs() as logged:
        Unreadable()._unreadable(f"data {SECRET}".encode(), ValueError("no id"))
        said: dict[str, Any] = {"message": f"cannot do {SECRET}", "type": "InternalServerError", "code": 500}
        engine_error(said, "r", has_begun=True)
    assert len(logged) == 2 and SECRET not in json.dumps(logged)
