"""The scripted engine: a stub engine that plays scenes to real clients. `GET /script/truth` returns what was played."""

from dataclasses import dataclass, field

from aiohttp import web

from burnish.testing.scenes import Outcome, Play, Script, Truth
from burnish.testing.stub_engine import Headers, StubEngine
from burnish.testing.stub_reply import Played, Refusal, Scripted, Tree


@dataclass
class ScriptedEngine(StubEngine):
    """Answers by its script. `truths` exist while it runs."""

    script: Script = field(default_factory=lambda: Script(()))

    def __post_init__(self) -> None:
        self._play = Play(self.script)
        self._open: dict[str, Truth] = {}

    @property
    def truths(self) -> list[Truth]:
        return self._play.truths

    def plan(self, body: Tree, headers: Headers, n: int) -> list[Scripted] | Refusal:
        request_id = headers.get("x-request-id", "")
        truth, plan = self._play.answer(body, request_id, n)
        if isinstance(plan, Refusal):
            self._play.settle(truth, Outcome.REFUSED)
        else:
            truth.n_calls = [len(reply.tool_calls) for reply in plan]
            self._open[request_id] = truth
        return plan

    def began(self, headers: Headers, replies: list[Played]) -> None:
        self._open[headers.get("x-request-id", "")].token_ids = [reply.token_ids for reply in replies]

    def ended(self, headers: Headers, *, was_heard: bool) -> None:
        if truth := self._open.pop(headers.get("x-request-id", ""), None):
            self._play.settle(truth, Outcome.ANSWERED if was_heard else Outcome.LEFT)

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/script/truth", self._tell)

    async def _tell(self, request: web.Request) -> web.Response:
        return web.json_response([truth.to_json() for truth in self.truths])
