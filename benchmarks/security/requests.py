"""A request for every route, about one thing: an agent, a turn of it by the user ann, and her feedback on that turn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from burnish.journal.privacy.erasure import subject_of
from burnish.keys import Scope
from burnish.server.gateway.access.matrix import Asker
from burnish.server.gateway.http import docs_page

TENANT, FOREIGN = "default", "foreign"
AGENT, OTHER_AGENT = "agent", "second"
USER, OTHER_USER = "ann", "bob"
HELLO = [{"role": "user", "content": "hello there"}]


@dataclass(frozen=True, slots=True)
class Things:
    """The turn and the feedback in the journal, and the number of this question."""

    turn: str
    feedback: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """How to ask a route. `answers` are the statuses of a caller who is let in. `mark` is the text by which a list
    shows the thing.
    """

    body: Callable[[Things, Asker], Any] | None = None
    answers: frozenset[int] = frozenset({200})
    query: str = ""
    mark: Callable[[Things], str] | None = None


def _said(body: Any, *answers: int) -> Request:
    return Request(lambda things, asker: body, frozenset(answers or (200,)))


def _opinion(things: Things, asker: Asker) -> dict[str, Any]:
    source = {"source": "verifier"} if Scope.OPERATOR in asker.held else {}
    return {"id": f"q{things.number}", "target": things.turn, "rating": "up", **source}


def _new_agent(things: Things, asker: Asker) -> dict[str, Any]:
    return {"name": "made-by-own" if asker.is_own_tenant else f"{FOREIGN}~made-by-foreign"}


def _erasure(things: Things) -> str:
    """The name of the erasure of the thing's user in the thing's tenant."""
    return subject_of((TENANT, "user", USER))


_ON_AGENT = "/admin/agents/{agent}"
_VERSION = _ON_AGENT + "/versions/{version}"
_PLAIN = Request()
_REASONED = _said({})
REQUESTS: dict[str, Request] = {
    "POST /v1/chat/completions": _said({"model": AGENT, "messages": HELLO}),
    "POST /v1/completions": _said({"model": AGENT, "prompt": "hello"}),
    "POST /v1/responses": _said({"model": AGENT, "input": "hello"}),
    "POST /v1/messages": _said({"model": AGENT, "max_tokens": 9, "messages": HELLO}),
    "POST /v1/messages/count_tokens": _said({"model": AGENT, "messages": HELLO}),
    "POST /v1/embeddings": _said({"model": AGENT, "input": "hello"}),
    "POST /v1/users/tokens": _said({"user": USER, "agents": [AGENT]}),
    "GET /v1/models": Request(mark=lambda things: f'"id":"{AGENT}"'),
    "GET /v1/models/{id}": _PLAIN,
    "POST /v1/feedback": Request(_opinion, frozenset({202})),
    "POST /v1/feedback/batch": Request(lambda things, asker: {"feedback": [_opinion(things, asker)]}, frozenset({202})),
    "POST /v1/feedback/tokens": Request(lambda things, asker: {"target": things.turn}),
    "GET /v1/feedback": Request(query="target={turn}", mark=lambda things: f'"id":"{things.feedback}"'),
    "GET /v1/feedback/{feedback_id:path}": _PLAIN,
    "DELETE /v1/feedback/{feedback_id:path}": Request(answers=frozenset({202})),
    "GET /healthz": _PLAIN,
    "GET /readyz": _PLAIN,
    "GET /metrics": _PLAIN,
    **{f"GET {path}": _PLAIN for path in docs_page.PATHS},
    "GET /openapi.json": _PLAIN,
    "GET /admin/agents": Request(mark=lambda things: f'"name":"{AGENT}"'),
    "POST /admin/agents": Request(_new_agent),
    "GET /admin/keys": _PLAIN,
    "POST /admin/keys": _said({"scopes": ["viewer"]}),
    "POST /admin/keys/revoke": _said({"key_id": "none"}, 404),
    "GET /admin/audit": Request(query="limit=1000", mark=lambda things: f'"agent":"{AGENT}"'),
    "GET /admin/turns/{turn}": _PLAIN,
    "GET /admin/turns/{turn}/tokens": _PLAIN,
    "GET /admin/privacy/export": Request(query=f"user={USER}", mark=lambda things: f'"turn": "{things.turn}"'),
    "GET /admin/privacy/status": Request(None, frozenset({200, 404}), f"user={USER}", _erasure),
    "POST /admin/privacy/opt-out": _said({"user": "nobody"}),
    "POST /admin/privacy/opt-in": _said({"user": "nobody"}),
    "POST /admin/privacy/forget": Request(lambda *_: {"user": USER, "dry_run": True}, mark=_erasure),
    f"GET {_ON_AGENT}": _PLAIN,
    f"POST {_ON_AGENT}/set": _said({"settings": {}}),
    f"POST {_ON_AGENT}/end-hold": _REASONED,
    f"POST {_ON_AGENT}/promote": _said({"version": 0}),
    f"POST {_ON_AGENT}/rollback": _said({"to": 0}, 200, 409),
    f"GET {_ON_AGENT}/learner": _PLAIN,
    f"GET {_ON_AGENT}/learner/runs": _PLAIN,
    f"GET {_ON_AGENT}/learner/runs/{{version}}": Request(answers=frozenset({200, 404})),
    f"POST {_ON_AGENT}/learner/pause": _REASONED,
    f"POST {_ON_AGENT}/learner/resume": _REASONED,
    f"POST {_ON_AGENT}/learner/step": _REASONED,
    f"GET {_ON_AGENT}/status": _PLAIN,
    f"GET {_ON_AGENT}/judges": _PLAIN,
    f"GET {_ON_AGENT}/turns": _PLAIN,
    f"GET {_ON_AGENT}/turns/session/{{session_id:path}}": _PLAIN,
    f"GET {_ON_AGENT}/feedback": _PLAIN,
    f"GET {_ON_AGENT}/judges/label": _PLAIN,
    f"GET {_ON_AGENT}/canary": _PLAIN,
    f"POST {_ON_AGENT}/canary/start": _said({"version": 1}, 200, 409),
    f"POST {_ON_AGENT}/canary/stop": _said({}, 200, 409),
    f"GET {_ON_AGENT}/export": _PLAIN,
    f"GET {_ON_AGENT}/versions": _PLAIN,
    f"POST {_ON_AGENT}/versions/gc": _said({"dry_run": True}),
    f"POST {_ON_AGENT}/versions/import": _said(None, 400),
    f"GET {_VERSION}": _PLAIN,
    f"GET {_VERSION}/lineage": _PLAIN,
    f"GET {_VERSION}/pairs": _PLAIN,
    f"GET {_VERSION}/export": _PLAIN,
    f"POST {_VERSION}/pin": _REASONED,
    f"POST {_VERSION}/unpin": _REASONED,
}
"""By method and path."""


def path_of(route: str, things: Things) -> str:
    """The path of the request, with its parameters."""
    filled = {
        "{agent}": AGENT,
        "{version}": "1",
        "{id}": AGENT,
        "{turn}": things.turn,
        "{session_id:path}": things.turn,
        "{feedback_id:path}": things.feedback,
    }
    path = route.partition(" ")[2]
    for name, value in filled.items():
        path = path.replace(name, value)
    query = REQUESTS[route].query.replace("{turn}", things.turn)
    return f"{path}?{query}" if query else path
