"""Tables of `burnish learner`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape

from burnish.cli.common import counted, when
from burnish.cli.tables import Listing, plain
from burnish.records import StepOutcome

if TYPE_CHECKING:
    from burnish.learner.run.reproduce import Reproduced

Tree = Mapping[str, Any]
_SHOWN = ("reward_mean", "grad_norm", "entropy", "seconds")


def standing(report: Tree) -> Listing:
    """The learner's state, one fact a line."""
    table = Listing(show_header=False, title=f"learner of {report['agent']}")
    table.add_row("[bold]now", escape(report["learning"]))
    waited = f", the oldest for {report['oldest_waits_s']:.0f} s" if report["oldest_waits_s"] is not None else ""
    table.add_row("[bold]rows ready", f"{report['n_ready']} of {report['min_rows']}{waited}")
    if report["n_in_step"]:
        table.add_row("[bold]rows in the step", str(report["n_in_step"]))
    dropped = ", ".join(f"{reason} {n}" for reason, n in sorted(report["dropped"].items(), key=lambda pair: -pair[1]))
    table.add_row("[bold]rows dropped", escape(dropped) or "none")
    last = report["last_step"]
    table.add_row("[bold]last step", _told(last) if last else "none yet")
    return table


def _told(step: Tree) -> str:
    """A step in few words. `open` means that it is under way."""
    began = f"began {when(step['started_at'])}"
    return f"v{step['version']} {'is under way' if step['outcome'] == StepOutcome.OPEN else step['outcome']}, {began}"


def why_unused(row: Tree) -> str:
    """Why a step did not use a row, or the row's hint."""
    refused = f"hint: {row['hint_status']}" if row["hint_status"] else ""
    weight = f"weight {row['weight']:.2f}" if row["weight"] is not None else ""
    return escape("; ".join(filter(None, (row["skipped"], refused, weight))))


def runs(agent: str, found: Sequence[Tree]) -> Listing:
    """One step a line, the newest first."""
    table = Listing(
        "version",
        "from",
        "outcome",
        "health",
        "rows",
        "idle",
        "hints",
        *(name.replace("_", " ") for name in _SHOWN),
        "began",
        "reason",
        least=("entropy", "grad norm", "idle", "hints", "from", "seconds"),
    )
    table.title = f"steps of {agent}"
    for each in found:
        hints = f"{each['n_hints'] - each['n_hints_refused']} of {each['n_hints']}" if each["n_hints"] else ""
        figures = [f"{each['metrics'][name]:.3g}" if name in each["metrics"] else "" for name in _SHOWN]
        made = (f"v{each['version']}", f"v{each['parent']}", each["outcome"], _level(each["level"]))
        table.add_row(
            *made,
            str(each["n_rows"]),
            str(each["n_idle"]),
            hints,
            *figures,
            when(each["started_at"]),
            escape(each["reason"] or ""),
        )
    return table


def story(report: Tree) -> Group:
    """A step with its figures and its rows."""
    facts = Listing(show_header=False, title=f"step to v{report['version']} from v{report['parent']}")
    facts.add_row("[bold]outcome", escape(f"{report['outcome']} {report['reason'] or ''}"))
    facts.add_row("[bold]began", f"{when(report['started_at'])}, try {report['attempt']}")
    for name, value in sorted(report["metrics"].items()):
        facts.add_row(name, escape(plain(value, name)))
    monitors = Listing("monitor", "level", "value", "why", title="monitors")
    for name, reading in sorted(report["monitors"].items()):
        value = reading.get("value")
        shown = f"{value:.4g}" if isinstance(value, int | float) else ""
        monitors.add_row(name.replace("_", " "), _level(reading["level"]), shown, escape(reading.get("why") or ""))
    columns = ("turn", "reward at step", "by", "hint", "log-prob a token", "not used because")
    least = ("log-prob a token", "by", "reward at step")
    rows = Listing(*columns, least=least, title=counted(report["n_rows"], "row"))
    for row in report["rows"]:
        reward = f"{row['reward']:+g}" if row["reward"] is not None else ""
        moved = f"{row['logprob_change']:+.3f}" if row["logprob_change"] is not None else ""
        hint = escape(row["hint"] or "")
        rows.add_row(row["interaction_id"], reward, row["reward_source"] or "", hint, moved, why_unused(row))
    parts = [facts, *([monitors] if report["monitors"] else []), rows]
    if report["groups"]:
        groups = Listing(
            "group of",
            "scores (the live reply's first)",
            "not used because",
            title=counted(len(report["groups"]), "shadow group"),
        )
        for each in report["groups"]:
            weight = f"weight {each['weight']:.2f}" if each["weight"] is not None else ""
            why = "; ".join(filter(None, (each["skipped"], weight)))
            groups.add_row(each["interaction_id"], " ".join(f"{score:.2f}" for score in each["scores"]), escape(why))
        parts.append(groups)
    return Group(*parts)


def reproduced(report: "Reproduced") -> Listing:
    """Whether the reproduced version equals the published one."""
    table = Listing(
        show_header=False,
        title=f"v{report.version} reproduced from v{report.parent} and {counted(report.n_rows, 'row')}",
    )
    table.add_row("[bold]verdict", "[green]identical, bit for bit[/]" if report.is_same else "[red]different[/]")
    table.add_row("published", report.expected)
    table.add_row("reproduced", report.digest)
    if not report.is_same:
        table.add_row("largest difference", f"{report.max_difference:.3g}")
        table.add_row(
            "possible reason", escape("; ".join(report.reasons)) or "the rows or rewards in the journal have changed"
        )
    return table


def _level(name: str | None) -> str:
    """A monitor's level in its own colour."""
    return f"[{name}]{name}[/]" if name else ""
