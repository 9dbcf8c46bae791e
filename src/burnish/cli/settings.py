"""`burnish config`: every setting, its value here and one sentence about it."""

from typing import Annotated

import typer
from rich.table import Table

from burnish import config as tree
from burnish.cli.common import AsJson, ConfigFile, Overrides, load_settings, out, print_json


def markdown() -> str:
    """Every setting with its default and meaning, as docs/reference/settings.md shows them."""
    lines = [
        "# Settings",
        "",
        "`burnish.toml` in the working directory (or `--config FILE`), then variables such as `BURNISH_LEARNER__MIN_ROWS=8`, then",
        "`--set learner.min_rows=8`; later wins. `burnish config` shows what is in force. Where the sandbox's model is served,",
        "`sandbox/burnish.toml` stands under all of these. This page is what `burnish config --markdown` prints.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    defaults = tree.defaults()
    for key, description in tree.described().items():
        lines.append(f"| `{key}` | `{defaults[key]}` | {description} |")
    return "\n".join(lines) + "\n"


def config(
    file: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page of docs/reference/settings.md.")
    ] = False,
) -> None:
    """Show every setting with its value and what it means."""
    if as_markdown:
        typer.echo(markdown(), nl=False)
        return
    settings = load_settings(file, overrides)
    values = settings.model_dump(mode="json")
    rows = []
    for key, description in tree.described().items():
        section, _, leaf = key.partition(".")
        value = values[section][leaf] if leaf else values[section]
        rows.append((key, value, description))
    if as_json:
        print_json({key: value for key, value, _ in rows})
        return
    table = Table("setting", "value", "meaning")
    for key, value, description in rows:
        is_secret = key.endswith("api_key") and value
        table.add_row(key, "(set)" if is_secret else str(value), description)
    out.print(table)
