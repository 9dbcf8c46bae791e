"""`burnish config`: every setting with its value and one sentence about it."""

import json
from typing import Annotated

import typer

from burnish import config as tree
from burnish.cli.common import AsJson, ConfigFile, Overrides, load_settings, out, print_json
from burnish.cli.tables import Listing


def markdown() -> str:
    """Every setting with its default and meaning, as Markdown for docs/reference/settings.md."""
    lines = [
        "# Settings",
        "",
        "Burnish reads `burnish.toml` in the working directory (or `--config FILE`), then variables such as",
        "`BURNISH_LEARNER__MIN_ROWS=8`, then flags such as `--set learner.min_rows=8`. Later sources win. If the "
        "sandbox's",
        "model is served, `sandbox/burnish.toml` lies below all of these. `burnish config` shows the values in force.",
        "",
        "A default `preset: …` comes from the learner's preset `general` ([the recipe](recipe.md)). Each agent may "
        "have its",
        "own `learner`, `gate`, `canary` and `versions` settings ([several agents](../how-to/agents.md)).",
    ]
    defaults, described = tree.defaults(), tree.described()
    for (title, about), keys in tree.grouped().items():
        lines += ["", f"## {title}", *(["", about] if about else []), ""]
        lines += ["| setting | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | `{defaults[key]}` | {described[key]} |" for key in keys]
    return "\n".join(lines) + "\n"


def recipe_markdown() -> str:
    """The table of docs/reference/recipe.md: each field with its default, the presets' changes and its meaning."""
    plain = tree.Recipe().model_dump(mode="json")
    presets = {name: changes for name, changes in tree.PRESETS.items() if changes}
    lines = [f"| field | `general` | {' | '.join(f'`{name}`' for name in presets)} | meaning |"]
    lines.append("|---" * (3 + len(presets)) + "|")
    for name, field in tree.Recipe.model_fields.items():
        changed = [f"`{json.dumps(each[name])}`" if name in each else "" for each in presets.values()]
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{name}` | `{json.dumps(plain[name])}` | {' | '.join(changed)} | {meaning} |")
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
    values, described = tree.effective(settings), tree.described()
    if as_json:
        print_json(values)
        return
    for (title, _), keys in tree.grouped().items():
        table = Listing("setting", "value", "meaning", title=title, title_justify="left")
        for key in keys:
            is_secret = key.endswith("api_key") and values[key]
            table.add_row(key, "(set)" if is_secret else str(values[key]), described[key])
        out.print(table)
