"""`burnish config`: every setting, its value here and one sentence about it."""

from rich.table import Table

from burnish import config as tree
from burnish.cli.common import AsJson, ConfigFile, Overrides, load_settings, out, print_json


def config(file: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show every setting with its value and what it means."""
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
