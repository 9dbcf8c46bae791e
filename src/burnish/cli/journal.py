"""`burnish journal`: look after what is recorded."""

import typer

from burnish.cli.common import AsJson, ConfigFile, StateDir, Yes, answer, confirm, example, load_settings
from burnish.segments.file import aside_of

app = typer.Typer(
    help="Look after what is recorded.",
    epilog=example("journal vacuum"),
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Without this, typer makes the group's only command the group itself."""


@app.command(epilog=example("journal vacuum --yes"))
def vacuum(yes: Yes = False, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """Remove records and segments that the ingester could not read and has set aside."""
    folder = aside_of(load_settings(file, None, state).segments_dir)
    found = sorted(folder.glob("*.seg"))
    if found:
        confirm(f"Remove {len(found)} files from {folder}? Nobody has read what they hold.", yes)
    for path in found:
        path.unlink(missing_ok=True)
    answer(f"removed {len(found)} files", {"removed": [path.name for path in found]}, as_json)
