"""`burnish judges label`: a person labels recorded turns one by one into a golden set, or it is made of the ratings
that people gave.

The judge's verdict is not shown, because it would influence the label. Each answer is on the disk before the next turn
comes. A later run continues after the last label. Skipped turns are remembered in a file beside the golden set.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.rule import Rule
from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.registry.agents import tenant_of
from burnish.cli.common import AgentName, ConfigFile, Limit, StateDir, console, counted, load_settings, out
from burnish.cli.tables.turns import message_panel
from burnish.errors import BurnishError
from burnish.journal import Journal
from burnish.journal.listing.judge_figures import latest_ratings
from burnish.journal.tables import InteractionRow, NextStateRow
from burnish.journal.turns import messages_of
from burnish.records import NextStateKind

if TYPE_CHECKING:
    from burnish.judges.calibration.golden import GoldenCase

SCORES = {"+": 1, "=": 1, "0": 0, "-": -1}
KINDS = (NextStateKind.USER_REPLY, NextStateKind.TOOL_RESULT)
KEYS = "[bold]+[/] good   [bold]0[/] cannot tell   [bold]-[/] bad   [bold]s[/] skip   [bold]q[/] quit"


def label(
    agent: AgentName = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Golden set to append to.")] = Path("golden.jsonl"),
    rated: Annotated[
        bool, typer.Option("--rated", help="Ask nothing: take the turns that users have rated, if they agree.")
    ] = False,
    limit: Limit = 1000,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Label recorded turns by hand into a golden set. A later run continues where this one stopped."""
    settings = load_settings(file, None, state)
    journal = Journal.open(settings.journal_url, migrate=False)
    skipped = output.with_name(f"{output.name}.skipped")
    done = _labelled(output) | _lines(skipped)
    name = agent or settings.agent.name
    if rated:
        n_labelled = _take_ratings(journal, name, limit, done, output)
    else:
        with journal.read() as session:
            waiting = [each for each in _turns(session, name, limit) if each not in done]
        n_labelled = _label_all(journal, waiting, output, skipped)
    journal.close()
    console.print(
        f"{counted(n_labelled, 'turn')} labelled, {output} holds {counted(len(_labelled(output)), 'case')}",
        style="dim",
        soft_wrap=True,
    )


def _label_all(journal: Journal, waiting: list[str], target: Path, skipped: Path) -> int:
    from burnish.judges.calibration import golden

    if not waiting:
        console.print("no turns left to label: each turn with a next state is labelled or skipped already")
    n_labelled = 0
    for number, name in enumerate(waiting, 1):
        # closed before the question: an open session would keep old pages of the database
        with journal.read() as session:
            case = _case(session, name)
        _show(case, f"{number} of {len(waiting)} · {name}")
        key = _key()
        if key == "q":
            break
        try:
            if key == "s":
                with skipped.open("a", encoding="utf-8") as names:
                    names.write(f"{name}\n")
                continue
            golden.append(target, golden.scored(case, SCORES[key]))
        except OSError as error:
            raise _full(target, error) from error
        n_labelled += 1
    return n_labelled


def _take_ratings(journal: Journal, agent: str, limit: int, done: set[str], target: Path) -> int:
    """Add the turns of the latest `limit` pieces of feedback whose raters agree. The sign of a rating is the score."""
    from burnish.judges.calibration import golden

    with journal.read() as session:
        said = latest_ratings(session, agent, tenant_of(session, agent), limit)
        agreed = {name: next(iter(signs.values())) for name, signs in said.items() if len(set(signs.values())) == 1}
        names = [name for name in _with_reaction(session, agreed) if name not in done]
        cases = [golden.scored(_case(session, name), agreed[name]) for name in names]
    try:
        for case in cases:
            golden.append(target, case)
    except OSError as error:
        raise _full(target, error) from error
    return len(cases)


def _with_reaction(session: Session, names: Iterable[str]) -> list[str]:
    """Those of the turns after which a user or a tool has said something."""
    wanted = select(col(NextStateRow.interaction_id)).where(
        col(NextStateRow.interaction_id).in_(list(names)), col(NextStateRow.kind).in_(KINDS)
    )
    found = set(session.scalars(wanted))
    return [name for name in names if name in found]


def _full(target: Path, error: OSError) -> BurnishError:
    return BurnishError(
        f"cannot write to {target}: {error.strerror}; earlier labels are kept. "
        "Free some space or choose another --output"
    )


def _turns(session: Session, agent: str, limit: int) -> list[str]:
    """The turns with a user's reply or a tool's result after them, newest first."""
    wanted = (
        select(col(InteractionRow.interaction_id))
        .join(NextStateRow, col(NextStateRow.interaction_id) == col(InteractionRow.interaction_id))
        .where(col(InteractionRow.agent) == agent, col(NextStateRow.kind).in_(KINDS))
        .order_by(col(InteractionRow.ended_at).desc(), col(InteractionRow.interaction_id))
        .limit(limit)
    )
    return [str(row[0]) for row in session.connection().execute(wanted)]


def _case(session: Session, name: str) -> "GoldenCase":
    """The turn as a golden case that is not scored yet (0)."""
    from burnish.judges.calibration.golden import GoldenCase

    turn, after = session.get_one(InteractionRow, name), session.get_one(NextStateRow, name)
    return GoldenCase(
        messages=tuple(messages_of(session, turn.message_digests)),
        reply=messages_of(session, [turn.reply_digest])[0],
        next_state=tuple(messages_of(session, after.message_digests)),
        origin="user" if after.kind == NextStateKind.USER_REPLY else "tool",
        score=0,
        turn=name,
    )


def _show(case: "GoldenCase", title: str) -> None:
    out.print(Rule(title, align="left"), width=None if out.is_terminal else 80)
    for message in case.messages[-3:]:
        out.print(message_panel(dict(message), "request"))
    out.print(message_panel(dict(case.reply), "reply"))
    for message in case.next_state:
        out.print(message_panel(dict(message), f"next state ({case.origin})"))
    out.print(KEYS)


def _key() -> str:
    """One of the keys. From a pipe, the first character of the next line. The end of input and Ctrl-C count as `q`."""
    while True:
        try:
            if sys.stdin.isatty():
                key = typer.getchar()
            else:
                line = sys.stdin.readline()
                key = line.strip()[:1] if line else "q"
        except (KeyboardInterrupt, EOFError):
            return "q"
        if key in SCORES or key in ("s", "q"):
            return key
        out.print(f"[yellow]expected one of these keys, got {key!r}:[/] {KEYS}")


def _labelled(path: Path) -> set[str]:
    from burnish.judges.calibration import golden

    return {case.turn for case in golden.load(path) if case.turn} if path.exists() and path.stat().st_size else set()


def _lines(path: Path) -> set[str]:
    return set(path.read_text(encoding="utf-8").split()) if path.exists() else set()
