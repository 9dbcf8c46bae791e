"""A receiver of traces: OTLP over HTTP on loopback, in a thread. It keeps what it got, decoded."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Arrived:
    """A span as the receiver has it. Ids are in hex, `parent` is empty for none."""

    trace: str
    span: str
    parent: str
    name: str
    attributes: dict[str, Any]


@dataclass
class Receiver:
    """`status` is what it answers, `headers` those of the last request."""

    url: str = ""
    status: int = 200
    spans: list[Arrived] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    headers: dict[str, str] = field(default_factory=dict)
    n_requests: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.n_requests += 1
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        if self.status != 200:
            return web.Response(status=self.status)
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for of_resource in sent.resource_spans:
            self.services.add(str(_plain(of_resource.resource.attributes)["service.name"]))
            for of_scope in of_resource.scope_spans:
                self.spans += [_arrived(span) for span in of_scope.spans]
        return web.Response(body=b"", content_type="application/x-protobuf")


def _arrived(span: Any) -> Arrived:
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    return Arrived(*ids, span.name, _plain(span.attributes))


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(each) for each in found.values] if kind == "array_value" else found


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A running receiver."""
    receiver, started, ended = Receiver(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/v1/traces", receiver.take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield receiver
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()
