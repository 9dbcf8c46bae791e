"""Tables of `burnish versions`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape

from burnish.cli.common import counted, when
from burnish.cli.tables import Listing, name_of, plain
from burnish.cli.tables.learner import why_unused
from burnish.journal.tables import VersionRow

Tree = Mapping[str, Any]


def listed(agent: str, rows: Sequence[VersionRow], pointed: Mapping[int, list[str]]) -> Listing:
    """One version a line, the base first."""
    table = Listing("version", "state", "alias", "from", "by", "made", "files", "reason", least=("by", "from", "files"))
    table.title = f"agent {agent}"
    table.add_row("v0", "base", " ".join(pointed.get(0, [])), "", "", "", "", "the frozen base")
    for row in rows:
        files = "removed" if row.removed_at is not None else "pinned" if row.is_pinned else ""
        parent = f"{row.parent_agent}@v{row.parent}" if row.parent_agent else f"v{row.parent}"
        aliases = " ".join(pointed.get(row.version, []))
        made = when(row.created_at)
        table.add_row(f"v{row.version}", row.state, aliases, parent, row.origin, made, files, escape(row.reason or ""))
    return table


def story(report: Tree) -> Group:
    """A version's story: facts, trials, rows, and the audit log's entries about it."""
    facts = Listing(show_header=False, title=report["name"])
    made_by = f"step {report['step_id']}" if report["step_id"] is not None else report["origin"]
    facts.add_row("[bold]made", f"{when(report['created_at'])} by {made_by}")
    facts.add_row("[bold]from", " ← ".join([report["name"], *report["ancestors"]]))
    facts.add_row("[bold]children", ", ".join(report["children"]) or "none yet")
    facts.add_row(
        "[bold]state", escape(" ".join(filter(None, (report["state"], *report["aliases"], report["reason"]))))
    )
    for span in report["live"]:
        ended = (
            f"to {when(span['to'])} ({escape(span['end_reason'] or span['ended_by'])})" if span["to"] else "until now"
        )
        facts.add_row("[bold]live", f"from {when(span['from'])} by {span['by']} {ended}")
    evidence = dict(report["evidence"] or {})
    retention = dict(evidence.get("retention") or {})
    forgotten = retention.pop("lost", ())
    for name, value in (evidence | ({"retention": retention} if retention else {})).items():
        facts.add_row(f"evidence: {name_of(name)}", escape(plain(value, name)))
    for row in report["canaries"]:
        facts.add_row(row["kind"], escape(f"{row['state']} compared with v{row['baseline']} {row['reason'] or ''}"))
    if report["comparisons"]:
        facts.add_row(
            "compared with the live version", ", ".join(f"{name} {n}" for name, n in report["comparisons"].items())
        )
    facts.add_row("[bold]answered", counted(report["n_turns"], "turn"))
    parts: list[RenderableType] = [facts]
    if forgotten:
        lost = Listing("forgetting prompt", "failed answer", title="forgotten")
        for each in forgotten:
            lost.add_row(escape(each["prompt"]), escape(each["reply"]))
        parts.append(lost)
    if report["step"] is not None:
        rows = Listing(
            "turn",
            "reward at step",
            "by",
            "hint",
            "not used because",
            least=("by", "reward at step"),
            title=f"made from {counted(report['step']['n_rows'], 'row')}",
        )
        for row in report["step"]["rows"]:
            reward = f"{row['reward']:+g}" if row["reward"] is not None else ""
            told = (row["interaction_id"], reward, row["reward_source"] or "", escape(row["hint"] or ""))
            rows.add_row(*told, why_unused(row))
        parts.append(rows)
    parts.append(entries(report["history"], "history"))
    return Group(*parts)


def entries(rows: Sequence[Tree], title: str) -> Listing:
    """Entries of the audit log."""
    table = Listing(
        "at", "actor", "action", "object", "before", "after", "reason", least=("before", "after"), title=title
    )
    for row in rows:
        words = (row["actor"], row["action"], row["object"], row["before"], row["after"], row["reason"])
        table.add_row(when(row["at"]), *(escape(str(word or "")) for word in words))
    return table


def removal(report: Tree) -> Listing:
    """The removed files and the kept ones, with reasons."""
    verb = "would be removed" if report["dry_run"] else "removed"
    table = Listing("version", "files", "because", title=f"retention of {report['agent']}")
    everything = [
        *((n, verb, why) for n, why in report["removed"].items()),
        *((n, "kept", why) for n, why in report["kept"].items()),
    ]
    for number, what, why in sorted(everything):
        table.add_row(f"v{number}", what, escape(why))
    for name in report["quarantined"]:
        table.add_row(name, verb, "in quarantine: its step was interrupted")
    return table
