"""The pages, by path. Each is a function from a visit to an answer."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.responses import Response

from burnish.server.ui.pages import agents, compare, feedback, learner, overview, turns, versions
from burnish.server.ui.visit import Visit

Page = Callable[[Visit], Awaitable[Response]]
_SEE, _DO = ("GET",), ("POST",)

PAGES: Sequence[tuple[str, Sequence[str], Page]] = (
    ("/", _SEE, agents.home),
    ("/go", _SEE, agents.go),
    ("/agents", _SEE, agents.agents),
    ("/keys", _SEE, agents.keys),
    ("/keys", _DO, agents.change_keys),
    ("/people", _SEE, agents.people),
    ("/people", _DO, agents.change_person),
    ("/audit", _SEE, agents.audit),
    ("/a/{agent}/overview", _SEE, overview.overview),
    ("/a/{agent}/conversations", _SEE, turns.conversations),
    ("/a/{agent}/sessions/{session:path}", _SEE, turns.session),
    ("/a/{agent}/turns/{turn:path}", _SEE, turns.turn),
    ("/a/{agent}/say", _DO, feedback.say),
    ("/a/{agent}/feedback", _SEE, feedback.inbox),
    ("/a/{agent}/labels", _SEE, feedback.labels),
    ("/a/{agent}/versions", _SEE, versions.versions),
    ("/a/{agent}/versions/{version:int}", _SEE, versions.version),
    ("/a/{agent}/release", _DO, versions.release),
    ("/a/{agent}/compare", _SEE, compare.compare),
    ("/a/{agent}/compare/reply", _DO, compare.reply),
    ("/a/{agent}/compare/vote", _DO, compare.vote),
    ("/a/{agent}/learner", _SEE, learner.learner),
    ("/a/{agent}/learner", _DO, learner.change),
    ("/a/{agent}/learner/{version:int}", _SEE, learner.step),
    ("/a/{agent}/judges", _SEE, learner.judges),
)
