"""One request of somebody who is signed in: the agent in its path, the API with the person's key, and the answer."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from burnish.server.ui.admin_api import AdminApi, ApiError, Tree
from burnish.server.ui.logins import Login
from burnish.server.ui.template_filters import FILTERS

MAX_FORM = 300_000
FRESH = 10.0
"""Seconds for which the list of agents is remembered."""
NAV = (
    ("overview", "Overview"),
    ("conversations", "Conversations"),
    ("feedback", "Feedback"),
    ("labels", "Label"),
    ("versions", "Versions"),
    ("compare", "Compare"),
    ("learner", "Learner"),
    ("judges", "Judges"),
)
"""The pages of an agent: the last part of their path, and their name."""
_HOME = Path(__file__).parent
STATIC = _HOME / "static"


def environment() -> jinja2.Environment:
    """The templates. Everything is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HOME / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals["m"] = made.get_template("parts/macros.html").module
    return made


_TEMPLATES = environment()


def rendered(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page."""
    return HTMLResponse(_TEMPLATES.get_template(template).render(**values), status)


@dataclass(slots=True)
class Visit:
    """A request, its login, and the API."""

    request: Request
    login: Login
    api: AdminApi

    @property
    def agent(self) -> str:
        return str(self.request.path_params.get("agent", ""))

    def path(self, page: str, agent: str | None = None) -> str:
        """The path of a page of an agent."""
        return f"/a/{agent or self.agent}/{page}"

    def asked(self, name: str) -> str:
        """A parameter of the URL, without spaces around. Empty if it is missing."""
        return self.request.query_params.get(name, "").strip()

    def number(self, name: str) -> int | None:
        """A whole number in the URL. None if it is missing. Raises ApiError."""
        text = self.asked(name).removeprefix("v")
        if not text:
            return None
        if not text.isdecimal() or len(text) > 9:
            raise ApiError(400, f"{name}: expected a whole number, got {text[:80]!r}")
        return int(text)

    def same(self, **changes: Any) -> str:
        """This page's URL with other parameters. None removes one."""
        query = {**dict(self.request.query_params), **changes}
        kept = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.request.url.path}?{urlencode(kept)}" if kept else self.request.url.path

    async def form(self) -> dict[str, str]:
        """The fields of a posted form. Raises ApiError if it is too large."""
        body = b""
        async for piece in self.request.stream():
            body += piece
            if len(body) > MAX_FORM:
                raise ApiError(413, f"the form is larger than {MAX_FORM:,} bytes")
        fields = parse_qsl(body.decode(errors="replace"))
        return {name: value.replace("\r\n", "\n").strip() for name, value in fields}

    async def agents(self) -> list[Tree]:
        """The agents that exist for the key. Personal agents are not listed."""
        if time.time() - self.login.listed_at > FRESH:
            found = (await self.api.get("/admin/agents"))["agents"]
            self.login.agents = [each for each in found if not each.get("parent")]
            self.login.listed_at = time.time()
        return self.login.agents

    async def page(self, template: str, title: str, here: str = "", status: int = 200, **values: Any) -> HTMLResponse:
        """A page with the frame around it. `here` names its entry in the navigation."""
        try:
            agents = await self.agents()
        except ApiError:
            agents = self.login.agents
        flash, self.login.flash = self.login.flash, ""
        agent = self.agent or (agents[0]["name"] if agents else "")
        frame: Mapping[str, Any] = {
            "title": title,
            "here": here,
            "nav": NAV,
            "agent": agent,
            "agents": [each["name"] for each in agents],
            "login": self.login,
            "flash": flash,
            "theme": self.request.cookies.get("burnish_theme", ""),
            "visit": self,
        }
        return rendered(template, status, **frame, **values)

    def go(self, path: str, flash: str = "") -> Response:
        """The answer to a form: see the page `path`, with a sentence about what was done."""
        self.login.flash = flash
        return RedirectResponse(path, 303)


def split(address: str) -> SplitResult:
    """The parts of an address that a browser sent. All are empty if it is none, whose parts Python would refuse."""
    try:
        found = urlsplit(address)
        _ = found.port
    except ValueError:
        return urlsplit("")
    return found
