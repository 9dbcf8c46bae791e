"""The site: its routes, signing in and out, and what guards every request.

`Host` must be a name of this machine or one that was allowed (against DNS rebinding), and a posted form must come from
this site (against forged requests). Every answer forbids scripts, styles and frames from elsewhere.
"""

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from urllib.parse import urlencode

import httpx
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from burnish.keys import ensure_secret
from burnish.server.ui.admin_api import AdminApi, ApiError
from burnish.server.ui.logins import LIFE, Login, Logins, use_link
from burnish.server.ui.pages import PAGES, Page
from burnish.server.ui.visit import STATIC, Visit, rendered, split

COOKIE = "burnish_ui"
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
Handler = Callable[[Request], Awaitable[Response]]


class Site:
    """The application. `own_key_file` and `link_file` belong to the one-time link; without them only keys sign in."""

    def __init__(
        self, http: httpx.AsyncClient, *, own_key_file: Path | None = None, link_file: Path | None = None
    ) -> None:
        self._http = http
        self._own_key_file = own_key_file
        self._link_file = link_file
        self._logins = Logins()

    def app(self, allowed_hosts: Collection[str] = ()) -> ASGIApp:
        """The ASGI application."""
        routes = [
            Route("/healthz", _alive),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            *(Route(path, self._for_people(page), methods=list(methods)) for path, methods, page in PAGES),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        made = Starlette(routes=routes, exception_handlers={404: self._nothing_here})
        return Guard(made, LOCAL | {host.lower() for host in allowed_hosts})

    async def sign_in(self, key: str) -> str:
        """The name of a new login with `key`. Raises ApiError if the key may not look."""
        told = (await AdminApi(self._http, key).get("/admin/agents"))["key"]
        return self._logins.add(Login(key, str(told["key_id"]), frozenset(told["scopes"])))

    async def _login(self, request: Request) -> Response:
        after = request.query_params.get("after", "/")
        after = after if after.startswith("/") and not after.startswith(("//", "/\\")) else "/"
        fault = ""
        if token := request.query_params.get("token"):
            if use_link(self._link_file, token) and self._own_key_file is not None:
                return await self._welcome(request, ensure_secret(self._own_key_file), after)
            fault = "This link was used before, or a newer one was made. `burnish ui --link` prints a new one."
        if request.method == "POST":
            form = await Visit(request, Login("", "", frozenset()), AdminApi(self._http, "")).form()
            return await self._welcome(request, form.get("key", ""), after)
        return _sign_in_page(request, after, fault, 400 if fault else 200)

    async def _welcome(self, request: Request, key: str, after: str) -> Response:
        try:
            name = await self.sign_in(key)
        except ApiError as error:
            return _sign_in_page(request, after, error.message, error.status)
        answer = RedirectResponse(after, 303)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(_cookie(request), name, max_age=int(LIFE), httponly=True, samesite="lax", secure=is_secure)
        return answer

    async def _logout(self, request: Request) -> Response:
        self._logins.end(request.cookies.get(_cookie(request)))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(_cookie(request))
        return answer

    def _for_people(self, page: Page) -> Handler:
        async def handler(request: Request) -> Response:
            login = self._logins.find(request.cookies.get(_cookie(request)))
            if login is None:
                if request.method != "GET":
                    return PlainTextResponse("signed out; sign in again", 401)
                here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(f"/login?{urlencode({'after': here})}" if here != "/" else "/login", 303)
            visit = Visit(request, login, AdminApi(self._http, login.key))
            try:
                return await page(visit)
            except ApiError as error:
                if error.status == 401:  # the key was revoked
                    self._logins.end(request.cookies.get(_cookie(request)))
                    return RedirectResponse("/login", 303)
                return await _failed(visit, error)

        return handler

    async def _nothing_here(self, request: Request, error: Exception) -> Response:
        async def page(visit: Visit) -> Response:
            raise ApiError(404, f"there is no page at {request.url.path}")

        return await self._for_people(page)(request)


class Guard:
    """Checks where a request comes from, and adds the headers."""

    def __init__(self, inner: ASGIApp, hosts: Collection[str]) -> None:
        self._inner = inner
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/static/"):
                    headers["cache-control"] = "max-age=3600"
            await send(message)

        request = Request(scope)
        if (fault := self._fault(request)) is not None:
            return await PlainTextResponse(fault, 403)(scope, receive, reply)
        await self._inner(scope, receive, reply)

    def _fault(self, request: Request) -> str | None:
        authority = request.headers.get("host", "")
        if (split(f"//{authority}").hostname or "").lower() not in self._hosts:
            return f"Host header: got {authority[:200]!r}, expected this machine or a name in gateway.allowed_hosts"
        if request.method in ("GET", "HEAD"):
            return None
        origin = request.headers.get("origin", "")
        if split(origin).netloc.lower() != authority.lower():
            return f"Origin header: got {origin[:200]!r}, expected this site's own"
        return None


async def _alive(request: Request) -> Response:
    return PlainTextResponse("ok")


def _cookie(request: Request) -> str:
    """The name of the login's cookie. Cookies know no ports, so that each site on a machine has a name of its own."""
    return f"{COOKIE}_{request.url.port or 80}"


def _sign_in_page(request: Request, after: str, fault: str, status: int) -> Response:
    return rendered("login.html", status, after=after, fault=fault, theme=request.cookies.get("burnish_theme", ""))


async def _failed(visit: Visit, error: ApiError) -> Response:
    """A refusal: after a form, the page that it came from with the reason; else a page of its own."""
    if visit.request.method == "POST" and "text/html" in visit.request.headers.get("accept", ""):
        back = split(visit.request.headers.get("referer", ""))
        if back.path:
            return visit.go(back.path + (f"?{back.query}" if back.query else ""), f"Not done: {error.message}")
    if visit.request.method == "POST":
        return PlainTextResponse(error.message, error.status)
    return await visit.page(
        "failed.html", "Not found" if error.status == 404 else "Not possible", status=error.status, error=error
    )
