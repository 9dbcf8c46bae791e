"""The admin API: FastAPI behind the raw hot path, one router per noun, with the verbs of the command line.

Reading needs a viewer's key, changing needs an operator's, and an admin's key does both. No route is open without a
key, not even on loopback. A key sees only the agents of its own tenant that it is limited to. Any other agent does not
exist for it.
"""

from fastapi import FastAPI

from burnish import __version__
from burnish.config import Settings
from burnish.journal import Journal
from burnish.server.gateway import openapi
from burnish.server.gateway.admin import (
    agents,
    audit,
    canary,
    exports,
    imports,
    keys,
    learner,
    privacy,
    releases,
    versions,
)
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.records import feedback, figures, turns
from burnish.server.gateway.feedback import stored
from burnish.server.gateway.http import docs_page
from burnish.server.gateway.http.error_envelope import install
from burnish.server.gateway.metrics import scrape


def admin_app(settings: Settings, journal: Journal) -> FastAPI:
    """The application that answers all requests outside the hot path."""
    app = FastAPI(title="Burnish", version=__version__, docs_url=None, redoc_url=None)
    access = Access(settings, journal)
    for noun in (
        agents,
        imports,
        versions,
        releases,
        learner,
        turns,
        feedback,
        figures,
        exports,
        audit,
        canary,
        privacy,
        keys,
    ):
        app.include_router(noun.router(settings, journal, access), prefix="/admin", tags=["admin"])
    app.include_router(stored.router(settings, journal))
    app.include_router(scrape.router(settings, journal))
    app.include_router(docs_page.router())
    install(app)
    openapi.install(app)
    return app
