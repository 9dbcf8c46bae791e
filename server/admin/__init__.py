"""The admin API: FastAPI behind the raw hot path, one router per noun, with the verbs and the words of the command line.

Looking needs a viewer's key, changing an operator's; an admin's opens both. No route is open without one, on loopback either. A key
sees its own tenant's agents alone, and of these the ones that it is limited to: for all else it is as if they did not exist.
"""

from fastapi import Depends, FastAPI

from burnish import __version__
from burnish.config import Settings
from burnish.journal import Journal
from burnish.keys import Scope
from server import openapi
from server.admin import agents, audits, exports, imports, learning, releases, turns, versions
from server.admin.access import Access
from server.canary import admin as canary
from server.envelope import install
from server.feedback import stored


def admin_app(settings: Settings, journal: Journal) -> FastAPI:
    """The application that answers what the hot path does not."""
    app = FastAPI(title="Burnish", version=__version__, docs_url="/docs", redoc_url=None)
    access = Access(settings, journal)
    for noun in (agents, imports, versions, releases, learning, turns, exports, audits):
        app.include_router(noun.router(settings, journal, access), prefix="/admin", tags=["admin"])
    own = [Depends(access.on_agent(Scope.VIEWER))]  # its routes ask for more where they change something
    app.include_router(canary.router(settings, journal), prefix="/admin", dependencies=own)
    app.include_router(stored.router(settings, journal))
    install(app)
    openapi.install(app)
    return app
