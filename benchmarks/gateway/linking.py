"""How many turns of the scripted traces the linker joins correctly, and how many to a wrong conversation."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from benchmarks.gateway import ours
from benchmarks.gateway.traces import Traces, Truth, reply_to
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.records import LinkRule
from burnish.server.ingest.ingester import Ingester
from burnish.testing import StubEngine


@dataclass
class Linked:
    """Counts over all recorded turns of the traces. `wrong` explains each error."""

    n_turns: int
    n_colliding: int
    n_right: int
    misjoined: int
    wrong: list[str]

    @property
    def share(self) -> float:
        return self.n_right / self.n_turns


def measure(folder: Path, port: int, n_each: int = 8) -> Linked:
    """Run the traces through a real gateway and a real ingester, and compare the links with the truth."""
    with (
        StubEngine(reply_to, needs_loaded=False, token_delay=0.0005) as engine,
        ours.gateway(folder, port, engine.url) as (_, settings),
    ):
        traces = Traces(f"http://127.0.0.1:{port}")
        traces.run(n_each)
    journal = Journal.open(settings.journal_url)
    Ingester(journal, settings.segments_dir, session_timeout=1e9).run_once()
    with journal.read() as session:
        rows = {row.interaction_id: row for row in session.scalars(select(InteractionRow))}
    journal.close()
    if missing := traces.truth.keys() - rows.keys():
        raise SystemExit(f"{len(missing)} replies are not in the journal")
    return compare(traces, rows)


def compare(traces: Traces, rows: dict[str, InteractionRow]) -> Linked:
    """Compare the journal's rows with the truth."""
    found = Linked(len(traces.truth), traces.n_colliding, 0, 0, [])
    for name, truth in traces.truth.items():
        row = rows[name]
        found.misjoined += _is_misjoined(name, truth, row, rows, traces)
        if problem := _problem(truth, row, rows):
            found.wrong.append(f"{truth.kind} turn of session {truth.session}: {problem}")
        else:
            found.n_right += 1
    return found


def _problem(truth: Truth, row: InteractionRow, rows: dict[str, InteractionRow]) -> str | None:
    if truth.kind == "retried":
        return (
            None
            if row.skip_reason in ("retried by its client", "aborted")
            else f"a try that was repeated has the skip reason {row.skip_reason}"
        )
    if truth.is_undecidable and row.link_rule == LinkRule.AMBIGUOUS:
        return None
    if row.parent_id != truth.parent:
        is_twin = (
            truth.is_undecidable
            and row.parent_id is not None
            and truth.parent is not None
            and rows[row.parent_id].session_id == rows[truth.parent].session_id
        )
        if not is_twin:  # if two answers to one question have the same text, either is correct
            return f"goes on from {truth.parent}, joined to {row.parent_id} by {row.link_rule}"
    is_side = row.kind == "side"
    return None if is_side == (truth.kind == "side") else f"is taken for a {row.kind} turn ({row.kind_reason})"


def _is_misjoined(
    name: str, truth: Truth, row: InteractionRow, rows: dict[str, InteractionRow], traces: Traces
) -> bool:
    """True if the turn's session holds a turn of another conversation."""
    return any(
        other.session_id == row.session_id and abs(traces.truth[key].session) != abs(truth.session)
        for key, other in rows.items()
        if key != name and key in traces.truth
    )
