"""Tables of `burnish turns`."""

import json
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Column, Table

from burnish.cli.common import out, when
from burnish.cli.tables import Listing, plain
from burnish.journal.story import Tree

MAX_CHARS = 1200
"""Characters of a message that are printed. --json prints all."""
BEGINNING = 60
"""Characters of a message that stand in the list of turns."""


def listed(agent: str, found: Sequence[Tree]) -> Listing:
    """One turn a line, with its training status and the beginning of its newest message."""
    least = ("kind", "ended", "version")
    table = Listing("turn", "version", "kind", "ended", "training", "said", least=least, title=f"agent {agent}")
    for line in found:
        said = " ".join(line["prompt"].split())
        said = said if len(said) <= BEGINNING else f"{said[:BEGINNING]}…"
        facts = (line["turn"], f"v{line['version']}", line["kind"], when(line["ended_at"]))
        table.add_row(*facts, escape(line["training_status"]), escape(said))
    return table


def thread(found: Sequence[Tree]) -> Group:
    """The turns of a session as they were said."""
    parts: list[RenderableType] = []
    for line in found:
        parts += [message_panel(message, f"v{line['version']}") for message in line["said"]]
        parts.append(message_panel(line["answer"], f"reply of v{line['version']}"))
        parts.append(f"[dim]{escape(line['turn'])}  {escape(line['training_status'])}[/]")
    return Group(*parts)


def said(agent: str, found: Sequence[Tree]) -> Listing:
    """One piece of feedback a line."""
    least = ("source", "version", "at")
    table = Listing("at", "source", "value", "words", "turn", "version", least=least, title=f"feedback on {agent}")
    for row in found:
        values = [f"{row[name]:+g}" for name in ("rating", "score", "outcome") if row[name] is not None]
        words = " / ".join(filter(None, (row["comment"], row["correction"], row["demonstration"])))
        version = f"v{row['turn']['version']}" if row["turn"] else ""
        cells = (when(row["created_at"]), row["source"], ", ".join(values))
        table.add_row(*cells, escape(words[:MAX_CHARS]), row["interaction_id"] or "", version)
    return table


def shown(report: Tree) -> Group:
    """One turn with its next state, feedback, judgements, reward and training."""
    facts = Table.grid(Column(), Column(overflow="fold"), padding=(0, 2))
    for name in ("turn", "agent", "session", "linked_by", "kind", "route", "finish_reason", "n_tokens"):
        facts.add_row(f"[bold]{name.replace('_', ' ')}", escape(plain(report[name], name)))
    facts.add_row("[bold]ended", when(report["ended_at"]))
    parts: list[RenderableType] = [facts]
    parts += [message_panel(message, "request") for message in report["messages"][-3:]]
    parts.append(message_panel(report["reply"], "reply"))
    if report["next_state"] is None:
        parts.append("[dim]no next state yet[/]")
    else:
        parts += _next_state(report["next_state"])
    if report["feedback"]:
        parts.append(_feedback(report["feedback"]))
    if report["judgements"]:
        least = ("of", "agreement", "hint status")
        columns = ("judge", "of", "votes", "score", "agreement", "why", "hint", "hint status")
        table = Listing(*columns, least=least, title="judgements")
        for row in report["judgements"]:
            votes = " ".join("abstain" if vote is None else f"{vote:+d}" for vote in row["votes"])
            cells = (
                row["judge_id"],
                row["origin"],
                votes or "by a rule",
                _text(row["score"]),
                f"{row['confidence']:.2f}",
            )
            table.add_row(*cells, escape(row["reason"] or ""), escape(row["hint"] or ""), row["hint_status"] or "")
        parts.append(table)
        injections = dict.fromkeys(finding for row in report["judgements"] for finding in row["findings"])
        parts += [f"[bold]prompt injection[/]  {escape(finding)}" for finding in injections]
    reward = report["reward"]
    withheld = f"none, withheld: {report['withheld']}" if report["withheld"] else "none"
    effective = (
        withheld
        if reward is None
        else f"{reward['value']:+g} by {reward['source']}, from {', '.join(reward['records'])}"
    )
    parts.append(f"[bold]effective reward[/]  {escape(effective)}")
    for sample in report["used"]:
        hint = f"hint refused: {sample['hint_status']}" if sample["hint_status"] else ""
        why = escape(" ".join(filter(None, (sample["skipped"], hint))))
        change = sample["logprob_change"]
        moved = f"log-prob {change:+.3f} a token " if change is not None else ""
        parts.append(f"[bold]step {sample['step_id']}[/]  reward at the step {_text(sample['reward'])} {moved}{why}")
    parts.append(f"[bold]training[/]  {escape(report['training_status'])}")
    if report["shadow_group"] is not None:
        parts.append(_shadow_group(report["shadow_group"]))
    return Group(*parts)


def _shadow_group(group: Tree) -> RenderableType:
    why = (
        f": {group['reason']}" if group["reason"] else f" in step {group['spent_step']}" if group["spent_step"] else ""
    )
    wish = group["wish"].replace("\n", " · ") or "people's ratings of other replies"
    told = escape(f"{group['state']}{why} · graded on: {wish} · {group['n_tokens']} tokens")
    table = Listing("member", "reply", "score")
    if group["wish"]:  # else the live reply is no member
        table.add_row("0 (live)", "[dim]as above[/]", _score(group["score"]))
    for member in group["shadows"]:
        table.add_row(
            str(member["member"]),
            escape(str(member["reply"].get("content") or "")[:MAX_CHARS]),
            _score(member["score"]),
        )
    return Group(f"[bold]shadow group[/]  {told}", table)  # a table's title is wrapped at the table's width


def _next_state(next_state: Tree) -> list[RenderableType]:
    if not next_state["messages"]:
        return [f"[dim]no answer: {next_state['kind']}[/]"]
    provenance = next_state["provenance"] or [""] * len(next_state["messages"])
    title = f"next state ({next_state['kind']})"
    parts: list[RenderableType] = [
        message_panel(m, f"{title}, {who}") for m, who in zip(next_state["messages"], provenance, strict=True)
    ]
    shown = ", ".join(f"{s['kind']} {s['value']:g} ({s['provenance']})" for s in next_state["signals"])
    return [*parts, f"[bold]signals[/]  {escape(shown)}"] if shown else parts


def _feedback(rows: list[Tree]) -> Listing:
    table = Listing("feedback", "source", "about", "value", "words", "at", least=("about", "at"), title="feedback")
    for row in rows:
        words = " / ".join(filter(None, (row["comment"], row["correction"], row["demonstration"])))
        named = (("", row["rating"]), ("score", row["score"]), (row["label"] or "outcome", row["outcome"]))
        value = ", ".join(f"{name} {number:+g}".strip() for name, number in named if number is not None)
        value = "withdrawn" if row["is_deleted"] else value
        table.add_row(row["feedback_id"], row["source"], row["about"], value, escape(words), when(row["created_at"]))
    return table


def message_panel(message: Tree, title: str) -> Panel:
    """One message in a frame."""
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    for call in message.get("tool_calls") or []:
        text += f"\n{json.dumps(call.get('function', call), ensure_ascii=False)}"
    shown = text.strip() if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} … {len(text) - MAX_CHARS} more characters"
    return Panel(
        escape(shown), title=f"{title} · {message.get('role', '?')}", title_align="left", expand=out.is_terminal
    )


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _text(value: float | None) -> str:
    return "abstain" if value is None else f"{value:+g}"
