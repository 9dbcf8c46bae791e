"""`burnish judges label`: a person labels recorded turns one by one into a golden set.

The judge's verdict is not shown, because it would influence the label. Each answer is on the disk before the next turn
comes. A later run continues after the last label. Skipped turns are remembered in a file beside the golden set.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.rule import Rule
from sqlalchemy import select
from sqlmodel import Session, col

from burnish.cli.common import AgentName, ConfigFile, Limit, StateDir, console, load_settings, out
from burnish.cli.tables.turns import message_panel
from burnish.errors import BurnishError
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, NextStateRow
from burnish.journal.turns import messages_of
from burnish.records import NextStateKind

if TYPE_CHECKING:
    from burnish.judges.calibration.golden import GoldenCase

SCORES = {"+": 1, "=": 1, "0": 0, "-": -1}
KEYS = "[bold]+[/] good   [bold]0[/] cannot tell   [bold]-[/] bad   [bold]s[/] skip   [bold]q[/] quit"


def label(
    agent: AgentName = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Golden set to append to.")] = Path("golden.jsonl"),
    limit: Limit = 1000,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Label recorded turns by hand into a golden set. A later run continues where this one stopped."""
    settings = load_settings(file, None, state)
    journal = Journal.open(settings.journal_url, migrate=False)
    skipped = output.with_name(f"{output.name}.skipped")
    done = _labelled(output) | _lines(skipped)
    with journal.read() as session:
        waiting = [name for name in _turns(session, agent or settings.agent.name, limit) if name not in done]
    n_labelled = _label_all(journal, waiting, output, skipped)
    journal.close()
    console.print(
        f"{n_labelled} turns labelled, {output} holds {len(_labelled(output))} cases", style="dim", soft_wrap=True
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
            raise BurnishError(
                f"cannot write to {target}: {error.strerror}; earlier labels are kept. "
                "Free some space or choose another --output"
            ) from error
        n_labelled += 1
    return n_labelled


def _turns(session: Session, agent: str, limit: int) -> list[str]:
    """The turns with a user's reply or a tool's result after them, newest first."""
    kinds = (NextStateKind.USER_REPLY, NextStateKind.TOOL_RESULT)
    wanted = (
        select(col(InteractionRow.interaction_id))
        .join(NextStateRow, col(NextStateRow.interaction_id) == col(InteractionRow.interaction_id))
        .where(col(InteractionRow.agent) == agent, col(NextStateRow.kind).in_(kinds))
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
    out.print(Rule(title, align="left"))
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
