"""`burnish ui`: the pages for people. `burnish up` starts them too."""

from pathlib import Path
from typing import Annotated

import typer

from burnish.cli.common import ConfigFile, Overrides, StateDir, load_settings, out
from burnish.cli.parts import LINK
from burnish.config import Settings
from burnish.processes.parts import gateway_url, ui_url


def ui(
    gateway: Annotated[
        str | None, typer.Option("--gateway", help="URL of a gateway elsewhere. Then only keys sign in, no link does.")
    ] = None,
    link: Annotated[
        bool, typer.Option("--link", help="Only print a new one-time link to the pages that `burnish up` serves.")
    ] = False,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
) -> None:
    """Serve the pages for people: conversations, feedback, versions, learning. `burnish up` does this too."""
    from burnish.adapters.serving.prepare import ui_key_file
    from burnish.server.ui.process import run

    settings = load_settings(file, overrides, state)
    if link:
        typer.echo(one_time_link(settings))
        return
    if gateway is not None:
        out.print(f"{ui_url(settings)} shows {gateway}", highlight=False, soft_wrap=True)
        run(settings.ui, gateway.rstrip("/"))
        return
    out.print(f"Sign in once: {one_time_link(settings)}", highlight=False, soft_wrap=True)
    own: dict[str, Path] = {"own_key_file": ui_key_file(settings), "link_file": settings.run_dir / LINK}
    run(settings.ui, gateway_url(settings), **own)


def one_time_link(settings: Settings) -> str:
    """A link that signs in once, in place of an earlier one."""
    from burnish.server.ui.logins import make_link

    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"{ui_url(settings)}/login?token={make_link(settings.run_dir / LINK)}"
