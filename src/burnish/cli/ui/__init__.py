"""`burnish ui`: the pages for people. `burnish up` starts them too."""

from typing import Annotated

import typer

from burnish.cli.common import ConfigFile, Overrides, StateDir, check_state, load_settings, out
from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.processes.parts import gateway_url, listening, ui_url

LINK = "ui.link"
"""The token of the one-time link to the pages, in `run/`."""


def ui(
    gateway: Annotated[
        str | None, typer.Option("--gateway", help="URL of a gateway elsewhere. Then keys sign in, and no link does.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    link: Annotated[
        bool, typer.Option("--link", help="Only print a new one-time link to the pages that `burnish up` serves.")
    ] = False,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
) -> None:
    """Serve the pages for people: conversations, feedback, versions, learning. `burnish up` does this too."""
    settings = load_settings(file, overrides, state)
    if not settings.gateway.ui_port:
        raise ConfigError("gateway.ui_port is 0, which means no pages; set it to a port, for example 8703")
    if gateway is None:
        check_state(settings)
        if link:
            return out.print(one_time_link(settings), highlight=False, soft_wrap=True)
    serve(settings, gateway, host, tells_link=gateway is None)


def serve(settings: Settings, gateway: str | None = None, host: str = "127.0.0.1", *, tells_link: bool = False) -> None:
    """Serve the pages of the gateway here, or of one elsewhere. The link is told when somebody listens behind it."""
    from burnish.adapters.serving.prepare import ui_key_file
    from burnish.server.ui.process import run

    own = {"own_key_file": ui_key_file(settings), "link_file": settings.run_dir / LINK} if gateway is None else {}
    url = gateway_url(settings) if gateway is None else gateway.rstrip("/")
    port = settings.gateway.ui_port
    listener = listening(host, port, "gateway.ui_port")
    if tells_link:
        out.print(f"Sign in once: {one_time_link(settings)}", highlight=False, soft_wrap=True)
    run(port, url, host=host, allowed_hosts=settings.gateway.allowed_hosts, listener=listener, **own)


def one_time_link(settings: Settings) -> str:
    """A link that signs in once, in place of an earlier one."""
    from burnish.server.ui.logins import make_link

    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"{ui_url(settings)}/login?token={make_link(settings.run_dir / LINK)}"
