#!/usr/bin/env python3
"""Writes the pages of the reference that come from the code: settings, command line, OpenAPI, who may ask what, list of
decisions.

`python docs/generate.py` writes them; `--check` writes nothing and exits with 1 if a page is out of date.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer.main
from fastapi import FastAPI

from burnish.adapters.serving.prepare import prepare
from burnish.cli import app as cli
from burnish.cli.settings import markdown as settings_page
from burnish.cli.settings import recipe_markdown
from burnish.config import Settings
from burnish.keys import OF_USERS, Scope
from burnish.server.gateway.access.matrix import ALLOWED, Agents, Asker, Binding, Declared, KeyKind, declared, expected
from burnish.server.gateway.access.need import Reach
from burnish.server.gateway.admin import admin_app

DOCS = Path(__file__).resolve().parent


def main() -> int:
    """Write or check every generated page. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    is_check = parser.parse_args().check
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/{name}: {'out of date; run `make docs`' if is_check else 'written'}")
    return 1 if is_check and stale else 0


def pages() -> dict[str, str]:
    """The text of each generated page, by its path below docs/."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state_dir=Path(folder))
        journal = prepare(settings)
        behind = admin_app(settings, journal)
        journal.close()
    return {
        "reference/settings.md": settings_page(),
        "reference/recipe.md": recipe_page(),
        "reference/cli.md": cli_page(),
        "reference/openapi.md": openapi_page(behind),
        "reference/access.md": access_page(behind),
        "decisions/index.md": decisions_page(),
    }


def recipe_page() -> str:
    """Every field of the recipe."""
    lines = [
        "# The recipe",
        "",
        "The recipe is everything that decides a training step. `learner.preset` names the values to start from:",
        "`general`, or `sandbox` for the sandbox's small model. The learner's [settings](settings.md) replace some of",
        "them. For experiments, `learner.recipe` replaces any of them:",
        "",
        "```toml",
        "[learner.recipe]",
        "kl_weight = 0.1",
        "```",
        "",
        "The same as a flag: `--set learner.recipe.kl_weight=0.1`. For one agent:",
        "`burnish agents set NAME --set learner.recipe.kl_weight=0.1`. An unknown name stops the start with an error",
        "that names the nearest known one. A version keeps the recipe that it was made with.",
        "[Objectives](objectives.md) gives the formulas.",
        "",
        recipe_markdown(),
    ]
    return "\n".join(lines)


def cli_page() -> str:
    """Every command with its help text, arguments and options."""
    lines = ["# Command line", "", "`burnish --help` and `burnish COMMAND --help` print the same texts.", ""]
    for path, command in _commands(typer.main.get_command(cli), "burnish"):
        lines += [f"## {path}", "", *_help(command), ""]
        options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        if arguments or options:
            lines += ["| argument or option | meaning |", "|---|---|"]
            lines += [f"| `{str(p.name).upper()}` | {_cell(getattr(p, 'help', None))} |" for p in arguments]
            lines += [f"| `{', '.join([*p.opts, *p.secondary_opts])}` | {_cell(p.help)} |" for p in options]
            lines.append("")
    return "\n".join(lines)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that runs, by its full name. Typer's classes differ from click's, so they are told by what they
    have."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        if not child.hidden:
            yield from _commands(child, f"{path} {name}")


def _help(command: Any) -> list[str]:
    """A command's help text; lines that show a command become a block."""
    lines: list[str] = []
    for line in (command.help or "").replace("\b", "").strip().splitlines():
        text = line.strip()
        is_shown = text.removeprefix("$ ").startswith("burnish ")
        lines += ["```console", f"$ {text.removeprefix('$ ')}", "```"] if is_shown else [text]
    return "\n".join(lines).replace("```\n```console\n", "").splitlines()


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


def openapi_page(behind: FastAPI) -> str:
    """Every route with its summary, from the document that a running gateway serves."""
    document: dict[str, Any] = behind.openapi()
    lines = [
        "# OpenAPI",
        "",
        "A running gateway serves the whole document at `/openapi.json` and a page to try it at `/docs`.",
        "[HTTP routes](http.md) says in words what this table lists.",
        "",
        "| method | path | what it does |",
        "|---|---|---|",
    ]
    for path, item in sorted(document["paths"].items()):
        for method, operation in item.items():
            if method != "parameters":
                said = operation.get("description") or operation.get("summary") or ""
                lines.append(f"| {method.upper()} | `{path}` | {_cell(said.strip().split(chr(10) * 2)[0])} |")
    return "\n".join(lines) + "\n"


def access_page(behind: FastAPI) -> str:
    """Every route with the callers that it lets in."""
    others = ("another tenant's", "an agent outside the key's", "another user's")
    heads = ["route", "no key", *(f"`{scope}`" for scope in Scope), *others]
    lines = [
        "# Who may ask what",
        "",
        "Each route declares the scopes that it needs and what it can touch. This table follows from the declarations.",
        "A test fails for a route that declares nothing. `python -m benchmarks.security` asks a gateway in every cell:",
        "every route, each scope, keys of its own and of another tenant, keys limited to this and to another agent,",
        "keys and tokens of the user and of another.",
        "",
        "- **yes**: the caller is let in. A number is the status of the refusal; [the error](http.md#errors) says why.",
        "- **no key**: a program of the gateway's own user, on loopback with `gateway.open_inference`. Elsewhere it is",
        "  a 401, and so is an unknown key everywhere. Routes that let everybody in look at no key.",
        "- **another tenant's**, **an agent outside the key's**: what a key with the scope gets about such a thing.",
        "- **another user's**: the same for a key or a token of a [proved user](http.md#users).",
        "- *hidden*: a list leaves the thing out. *never joins*: feedback is accepted, and it never reaches the reply.",
        "  *own*: the route touches only what is the caller's own.",
        "- A key that has only the scope `feedback` sees and deletes its own feedback. Other scopes: the tenant's.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for route in sorted(declared(behind), key=lambda each: (each.path, each.method)):
        keyed = [Asker(KeyKind.KNOWN, scope) for scope in Scope]
        cells = [_let_in(route, asker) for asker in (Asker(KeyKind.NONE), *keyed)]
        admin = Asker(KeyKind.KNOWN, Scope.ADMIN)
        cells += [_outside(route, admin, is_own_tenant=False), _outside(route, admin, agents=Agents.OTHER)]
        users = [Asker(KeyKind.KNOWN, scope, binding=Binding.KEY) for scope in sorted(OF_USERS)]
        asker = next((one for one in users if all(need.is_met(one.held) for need in route.needs)), users[0])
        cells.append(_outside(route, asker, binding=Binding.OTHER_KEY))
        lines.append(f"| `{route.name.replace(':path', '')}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _let_in(route: Declared, asker: Asker) -> str:
    is_own = route.reach is Reach.FEEDBACK and asker.scope is Scope.FEEDBACK
    status = expected(route, asker).status
    return "yes" if status == ALLOWED or (is_own and status == 404) else str(status)


def _outside(route: Declared, asker: Asker, **difference: Any) -> str:
    """What `asker` gets about what is not its own by the `difference`."""
    own, other = expected(route, asker), expected(route, replace(asker, **difference))
    if other.status != ALLOWED:
        return str(other.status)
    if own.is_shown and not other.is_shown and route.reach is not Reach.MODEL:
        return "never joins" if route.reach is Reach.TARGET else "hidden"
    return "–" if route.reach is Reach.NOTHING else "own"


def decisions_page() -> str:
    """The titles of all decisions."""
    lines = ["# Decisions", "", "Each page says what was decided, why, and what was measured.", ""]
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        number, _, words = title.partition(". ")
        lines.append(f"{int(number)}. [{words}]({path.name})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
