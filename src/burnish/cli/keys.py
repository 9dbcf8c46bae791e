"""`burnish keys`: create, list and revoke API keys."""

from typing import Annotated

import typer
from sqlalchemy import select

from burnish import keys as minting
from burnish.adapters.registry import revocations
from burnish.cli.common import (
    AsJson,
    ConfigFile,
    Reason,
    StateDir,
    answer,
    console,
    counted,
    example,
    has_state,
    load_settings,
    out,
    prepared,
    print_json,
)
from burnish.cli.tables import Listing
from burnish.errors import NotFound, RequestError
from burnish.journal.tables import KeyRow

app = typer.Typer(
    help="Create, list and revoke API keys.",
    epilog=example("keys create --scope inference", "keys list"),
    no_args_is_help=True,
)
ScopeList = Annotated[
    list[minting.Scope],
    typer.Option("--scope", help="inference, feedback, users, metrics, viewer, operator or admin; repeatable."),
]


@app.command(
    epilog=example(
        "keys create --scope inference --scope feedback --name laptop",
        "keys create --scope inference --scope feedback --user ann",
    )
)
def create(
    scope: ScopeList,
    name: Annotated[str, typer.Option(help="A name for the key.")] = "",
    tenant: Annotated[str, typer.Option(help="Tenant that the key belongs to.")] = "default",
    agent: Annotated[list[str] | None, typer.Option(help="Agents that the key may use (default: all).")] = None,
    user: Annotated[str | None, typer.Option(help="Make it for one user: whoever has it is that user.")] = None,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Whether its turns may be trained on.")] = True,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Whether its turns are recorded; without, none is trained on.")
    ] = True,
    rpm: Annotated[int, typer.Option("--rpm", min=0, help="Requests per minute; 0 = no limit.")] = 0,
    concurrent: Annotated[int, typer.Option(min=0, help="Requests at the same time; 0 = no limit.")] = 0,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its secret. The secret is shown only once."""
    from burnish.adapters.serving.prepare import prepare, refresh

    settings = load_settings(file, None, state)
    is_new = not has_state(settings)
    journal = prepare(settings)
    if is_new:
        made = f"{settings.state_dir} is a new state directory; only a server with this --state knows the key"
        console.print(f"burnish: {made}", highlight=False, soft_wrap=True)
    secret, key = minting.mint(
        scope,
        tenant=tenant,
        agents=agent or (),
        name=name,
        requests_per_minute=rpm,
        max_concurrent=concurrent,
        user=user,
        may_train=train,
        may_record=record,
    )
    with journal.write() as session:
        revocations.add_key(session, key, actor="cli")
    refresh(settings, journal)
    if as_json:
        shown = {"key_id": key.key_id, "secret": secret, "scopes": sorted(key.scopes), "tenant": key.tenant}
        print_json(shown | {"user": key.user, "may_train": key.may_train, "may_record": key.may_record})
    else:
        out.print(secret, highlight=False)


@app.command("list", epilog=example("keys list --json"))
def list_(file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """List keys, without their secrets."""
    _, journal, _ = prepared(file, state, None)
    with journal.read() as session:
        rows = session.scalars(select(KeyRow)).all()
    if as_json:
        print_json([row.model_dump(exclude={"digest"}) for row in rows])
        return
    table = Listing("key", "name", "user", "tenant", "scopes", "agents", "limits", "state", least=("tenant", "limits"))
    for row in rows:
        state_text = "revoked" if row.revoked_at else "active"
        agents = ", ".join(row.agents) or "all"
        who = (row.key_id, row.name, row.user or "", row.tenant)
        table.add_row(*who, ", ".join(row.scopes), agents, _limits(row), state_text)
    out.print(table)


@app.command(epilog=example("keys revoke sk-burnish-Ox_lUD", "keys revoke --user ann"))
def revoke(
    key_id: Annotated[str | None, typer.Argument(help="The key's id, as `keys list` shows it.")] = None,
    user: Annotated[str | None, typer.Option(help="Revoke all keys and user tokens of this user instead.")] = None,
    tenant: Annotated[str, typer.Option(help="Tenant of the user.")] = "default",
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key at once, or all keys and user tokens of a user.

    A token that is made for the user later is valid.
    """
    from burnish.adapters.serving.prepare import refresh

    if (key_id is None) == (user is None):
        raise RequestError("expected either a key's id or --user")
    settings, journal, _ = prepared(file, state, None)
    if user is not None:
        with journal.write() as session:
            n_keys = revocations.revoke_user(session, tenant, user, actor="cli", reason=reason)
        refresh(settings, journal)
        told = f"revoked {counted(n_keys, 'key')} and all tokens of the user {user!r}"
        return answer(told, {"user": user, "n_keys": n_keys}, as_json)
    assert key_id is not None
    with journal.write() as session:
        row = session.get(KeyRow, key_id.rstrip("…"))
        if row is None:
            raise NotFound(f"no key {key_id!r}; `burnish keys list` shows the keys")
        revocations.revoke_key(session, row, actor="cli", reason=reason)
    refresh(settings, journal)
    answer(f"revoked {row.key_id}", {"key_id": row.key_id}, as_json)


def _limits(row: KeyRow) -> str:
    parts = [f"{row.requests_per_minute}/min"] if row.requests_per_minute else []
    parts += [f"{row.max_concurrent} at a time"] if row.max_concurrent else []
    parts += [] if row.may_train else ["no training" if row.may_record else "no recording"]
    return ", ".join(parts) or "none"
