"""`/docs`: a page to read and try the OpenAPI document. Swagger UI's files are this server's own, not a CDN's."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

PATH = "/docs"
SCRIPT, STYLE, START = (f"{PATH}/{name}" for name in ("swagger-ui-bundle.js", "swagger-ui.css", "start.js"))
PATHS = (PATH, SCRIPT, STYLE, START)
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Burnish</title><link rel="stylesheet" href="docs/swagger-ui.css"></head>
<body><div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script><script src="docs/start.js"></script></body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true});\n'


def router() -> APIRouter:
    """The page and its files."""
    made = APIRouter(include_in_schema=False)

    @made.get(PATH)
    def page() -> HTMLResponse:
        return HTMLResponse(_PAGE)

    @made.get(START)
    def start() -> Response:
        return Response(_START, media_type="text/javascript")

    @made.get(SCRIPT)
    def script() -> FileResponse:
        return FileResponse(_files() / "swagger-ui-bundle.js", media_type="text/javascript")

    @made.get(STYLE)
    def style() -> FileResponse:
        return FileResponse(_files() / "swagger-ui.css", media_type="text/css")

    return made


@cache
def _files() -> Path:
    """The folder of fastapi-offline with Swagger UI. Its code is not imported."""
    found = find_spec("fastapi_offline")
    assert found is not None and found.origin is not None, "fastapi-offline is not installed; run `make setup`"
    return Path(found.origin).parent / "static"
