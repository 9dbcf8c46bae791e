"""Preparation before serving: directories, the journal's schema, the agent, Burnish's own keys, the serving table."""

from dataclasses import replace
from pathlib import Path

import structlog
from sqlalchemy import select
from sqlmodel import Session, col

from burnish import keys, serving_table
from burnish.adapters.registry import lifecycle, revocations
from burnish.adapters.serving.publish import aliases
from burnish.config import BASE_NAME, Settings
from burnish.errors import ConfigError, JournalUnavailable
from burnish.files import make_private, replace_text
from burnish.journal import Journal
from burnish.journal.tables import AgentRow, KeyRow, OptOutRow
from burnish.keys import engine_key

log = structlog.get_logger(__name__)
MODEL = "model"
"""The file in which a state directory names its model."""
_OURS = ("adapters", "cache", "import-*", "journal.db*", MODEL, "run", "segments", "*.key")
"""What Burnish keeps in the state directory. Somebody may have chosen a directory with other things in it."""


def prepare(settings: Settings) -> Journal:
    """Make what is missing. Safe to repeat and to run from several processes.

    Raises ConfigError if the state directory cannot be used, JournalError if the journal cannot.
    """
    make_folders(settings)
    journal = Journal.open(settings.journal_url)
    with journal.write() as session:
        lifecycle.ensure_agent(session, settings.agent.name)
    refresh(settings, journal)
    return journal


def prepare_serving(settings: Settings) -> Journal:
    """`prepare` for parts that answer clients. If the database does not answer, they start from the last serving table.

    Raises JournalUnavailable if there is no such table.
    """
    try:
        return prepare(settings)
    except JournalUnavailable as error:
        if not routes_file(settings).exists():
            raise
        log.warning("the journal does not answer; serving starts from the last serving table", error=str(error))
        refresh(settings, None)
        return Journal.at(settings.journal_url)


def make_folders(settings: Settings) -> None:
    """What a part without the journal needs. Raises ConfigError if the state directory cannot be used."""
    try:
        for folder in (settings.state_dir, settings.run_dir, settings.segments_dir, settings.adapters_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"state_dir: cannot write to {settings.state_dir}: {error.strerror}") from error
    try:
        make_private(settings.state_dir, _OURS)
    except OSError as error:
        log.warning("other users may read the state directory", folder=str(settings.state_dir), error=error.strerror)


def note_model(settings: Settings) -> None:
    """Keep the name of the model that is served, for commands that are not told it."""
    if settings.uses_sandbox:  # it is the default, wherever it is installed
        _model_file(settings).unlink(missing_ok=True)
    else:
        replace_text(_model_file(settings), settings.engine.model)


def noted_model(settings: Settings) -> str | None:
    """The model that was last served from this state directory. None if nothing was, or the sandbox's."""
    try:
        return _model_file(settings).read_text(encoding="utf-8")
    except OSError:
        return None


def _model_file(settings: Settings) -> Path:
    return settings.state_dir / MODEL


def routes_file(settings: Settings) -> Path:
    return settings.run_dir / "routes.json"


def admin_key_file(settings: Settings) -> Path:
    return settings.state_dir / "admin.key"


def ui_key_file(settings: Settings) -> Path:
    """The key of the pages for people, for whoever signs in with a link that `burnish up` printed."""
    return settings.state_dir / "ui.key"


def refresh(settings: Settings, journal: Journal | None) -> serving_table.Routes:
    """Write keys, engines and aliases from the settings and the registry into the serving table. A missing table is
    made.

    Without a journal, the keys and aliases stay as they are. Raises TableError if there is then no table to read.
    """
    own = [_own("admin", admin_key_file(settings), keys.Scope.ADMIN)]
    if settings.gateway.ui_port:
        own.append(_own(keys.UI, ui_key_file(settings), keys.Scope.OPERATOR, *keys.OF_USERS))

    def change(table: serving_table.Routes) -> serving_table.Routes:
        agents, known, opt_outs, revoked = table.agents, table.keys, table.opt_outs, table.revoked
        if journal is not None:
            with journal.read() as session:
                agents = {row.name: _route(session, table, row) for row in _served(session, table)}
                known = {key.digest: key for key in _keys(session)}
                opt_outs = {row.voice: row.may_record for row in session.scalars(select(OptOutRow))}
                revoked = revocations.of_users(session)
        return replace(
            table,
            base_name=BASE_NAME,
            engines=settings.engine_urls,
            engine_key=engine_key(settings),
            remote_url=f"http://127.0.0.1:{settings.remote_port}" if settings.remote.model else "",
            agents=agents,
            keys={**known, **{key.digest: key for key in own}},
            opt_outs=opt_outs,
            revoked=revoked,
        )

    return serving_table.update(routes_file(settings), change, is_made_anew=journal is not None)


def _own(key_id: str, file: Path, *scopes: keys.Scope) -> keys.Key:
    """A key of Burnish itself, of the tenant `default`. Its secret is in `file`."""
    return keys.Key(key_id, keys.digest(keys.ensure_secret(file)), "default", frozenset(scopes), name=file.name)


def _served(session: Session, table: serving_table.Routes) -> list[AgentRow]:
    """Every agent. Of the personal agents only the loaded ones."""
    found = session.scalars(select(AgentRow).where(col(AgentRow.parent).is_(None))).all()
    return [*found, *(row for name in table.agents if (row := session.get(AgentRow, name)) is not None and row.parent)]


def _route(session: Session, table: serving_table.Routes, row: AgentRow) -> serving_table.AgentRoute:
    route = aliases(session, table.agents.get(row.name) or serving_table.AgentRoute(row.name))
    wanted = {route.live} if row.parent else route.named  # a personal agent's previous version is loaded on request
    loaded = sorted({*route.loaded, *(number for number in wanted if number)})
    return replace(route, tenant=row.tenant, parent=row.parent, user=row.user, loaded=tuple(loaded))


def _keys(session: Session) -> list[keys.Key]:
    rows = session.scalars(select(KeyRow)).all()
    return [
        keys.Key(
            row.key_id,
            row.digest,
            row.tenant,
            frozenset(map(keys.Scope, row.scopes)),
            frozenset(row.agents),
            row.name,
            row.requests_per_minute,
            row.max_concurrent,
            row.user,
            row.may_train,
            row.may_record,
        )
        for row in rows
        if row.revoked_at is None
    ]
