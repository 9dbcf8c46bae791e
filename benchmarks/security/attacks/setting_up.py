"""Run in the checkout under attack: makes its state directory, agents and keys, and prints the keys as JSON.

It knows the places of its functions in this release and before issue 31.
"""

import io
import json
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Any

from burnish import cli, config
from burnish.journal.tables import KeyRow
from burnish.keys import Scope, mint


def _first(*names: str) -> Any:
    """The first of these modules that the checkout has."""
    for name in names:
        try:
            return import_module(name)
        except ImportError as error:
            last = error
    raise last


lifecycle = _first("burnish.adapters.registry.lifecycle", "adapters.agents")
serving = _first("burnish.adapters.serving.prepare", "server.prepare")


def main() -> None:
    """The keys to make are on the command line. The state directory is made as an operator makes it, by a command."""
    wanted = json.loads(sys.argv[1])
    sys.argv = ["burnish", "keys", "create", "--scope", "viewer", "--json"]
    with suppress(SystemExit), redirect_stdout(io.StringIO()):
        cli.main()
    settings = config.load()
    journal = serving.prepare(settings)
    secrets = {}
    with journal.write() as session:
        for name, tenant in (("second", "default"), ("theirs", "other")):
            lifecycle.ensure_agent(session, name, tenant)
        for name, terms in wanted.items():
            secrets[name], row = _key(terms)
            session.add(row)
    serving.refresh(settings, journal)
    print(json.dumps(secrets))


def _key(terms: dict[str, Any]) -> tuple[str, Any]:
    known = {scope.value for scope in Scope}
    terms["scopes"] = {Scope(scope) for scope in terms["scopes"] if scope in known}
    if not hasattr(KeyRow, "of"):
        terms.pop("user", None)
    secret, key = mint(**terms)
    if hasattr(KeyRow, "of"):
        return secret, KeyRow.of(key)
    names = ("key_id", "digest", "tenant", "name", "requests_per_minute", "max_concurrent")
    fields: dict[str, Any] = {name: getattr(key, name) for name in names}
    return secret, KeyRow(**fields, scopes=sorted(key.scopes), agents=sorted(key.agents), created_at=0.0)


main()
