"""What `burnish judges` prints: figures as tables and as JSON."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from burnish.judges.calibration.calibrate import Calibration
    from burnish.judges.calibration.rejudge import Again
    from burnish.judges.calibration.standings import Standing

MOST = 20
"""Turns listed; --json has them all."""
_FIGURES = (
    ("accuracy", "accuracy"),
    ("right_of_all", "right, of all cases"),
    ("false_positive_rate", "false positives"),
    ("kappa", "Cohen's κ"),
    ("calibration_error", "calibration error"),
    ("abstained", "abstained"),
    ("failed", "failed"),
)


def standings_table(found: "Sequence[Standing]") -> Table:
    table = Table(
        "judge", "verdicts", "abstained", "votes not read", "users agree", "last", title="judges in the journal"
    )
    for each in found:
        report = each.to_json()
        agreed = "no ratings" if each.agreement is None else f"{each.n_agreed} of {each.n_rated}: {_with(report)}"
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.last_at))
        counts = (str(each.n_verdicts), str(each.n_abstained), str(each.n_failed_votes))
        table.add_row(escape(each.judge_id), *counts, agreed, at)
    return table


def calibration_tables(report: "Calibration", source: str) -> Group:
    figures = report.figures
    table = Table(
        "figure",
        "value",
        title=f"{escape(report.model)} on {escape(source)} ({figures['cases']} cases)",
        title_justify="left",
    )
    for name, words in _FIGURES:
        value = _number(figures[name])
        if name == "accuracy" and figures["accuracy_interval"]:
            value += f"  (95 %: {_interval(figures['accuracy_interval'])})"
        table.add_row(words, value)
    table.add_row("settled by rule", str(figures["by_rule"]))
    table.add_row("votes read / asked", f"{figures['votes_read']:,} / {figures['votes_asked']:,}")
    table.add_row("tokens, prompts / answers", f"{figures['prompt_tokens']:,} / {figures['answer_tokens']:,}")
    table.add_row("time", f"{figures['seconds']:.1f} s, {figures['votes_per_s'] or 0:,.1f} votes/s")
    confusion = Table(
        "right", "said +1", "said 0", "said −1", "abstained", "failed", title="confusion", title_justify="left"
    )
    for right, row in report.confusion.items():
        confusion.add_row(
            f"{right:+d}" if right else "0", *(str(row[said]) for said in (1, 0, -1, "abstained", "failed"))
        )
    parts: list[RenderableType] = [table, confusion]
    if wrong := report.wrong:
        listed = Table("case", "right", "said", "came back", title="not right", title_justify="left")
        for number, case, opinion in wrong[:MOST]:
            came_back = " / ".join(str(message.get("content") or "") for message in case.next_state)
            listed.add_row(
                str(number), f"{case.score:+d}", str(opinion.outcome), escape((opinion.error or came_back)[:100])
            )
        parts += [listed, *([f"[dim]{len(wrong) - MOST} more; --json has them all[/]"] if len(wrong) > MOST else [])]
    return Group(*parts)


def calibration_json(report: "Calibration") -> dict[str, Any]:
    confusion = {str(right): {str(said): n for said, n in row.items()} for right, row in report.confusion.items()}
    wrong = [
        {
            "case": number,
            "right": case.score,
            "said": opinion.outcome,
            "votes": list(opinion.result.votes) if opinion.result else None,
            "error": opinion.error or None,
            "note": case.note,
            "turn": case.turn,
        }
        for number, case, opinion in report.wrong
    ]
    return {"judge": report.model, **report.figures, "confusion": confusion, "wrong": wrong}


def rejudge_tables(figures: Mapping[str, Any], again: "Sequence[Again]") -> Group:
    names = ["+1", "0", "-1", "abstained"]
    table = Table("before", *(f"now {name}" for name in names), title=f"judged again by {escape(figures['judge'])}")
    for old in names:
        row = figures["table"].get(old, {})
        table.add_row(old, *(str(row.get(new, 0)) for new in names))
    agreed = "no turn with two verdicts" if figures["agreement"] is None else _with(figures)
    words = [
        f"agreement {agreed}, κ {_number(figures['kappa'])}, "
        f"over {figures['both_gave_a_verdict']} turns with two verdicts"
    ]
    words.append(f"{figures['turns']} turns asked about, {figures['failed']} failed, {figures['changed']} changed")
    if "stored" in figures:
        words.append(f"{figures['stored']} new verdicts stored")
    parts: list[RenderableType] = [table, "\n".join(words)]
    if changed := [each for each in again if each.has_changed]:
        listed = Table("turn", "of", "before", "by", "now", title="changed")
        for each in changed[:MOST]:
            now = each.new.result.score if each.new.result else None
            listed.add_row(
                each.old.turn, each.old.origin, _score(each.old.score), escape(each.old.judge_id), _score(now)
            )
        parts += [
            listed,
            *([f"[dim]{len(changed) - MOST} more; --json has them all[/]"] if len(changed) > MOST else []),
        ]
    return Group(*parts)


def again_json(each: "Again") -> dict[str, Any]:
    new = each.new.result
    return {
        "turn": each.old.turn,
        "origin": each.old.origin,
        "before": each.old.score,
        "before_by": each.old.judge_id,
        "now": new.score if new else None,
        "now_by": each.new.judge_id,
        "votes": list(new.votes) if new else None,
        "error": each.new.error or None,
        "changed": each.has_changed,
    }


def _with(report: Mapping[str, Any]) -> str:
    return f"{report['agreement']:.3f} (95 %: {_interval(report['agreement_interval'])})"


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}"


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"


def _score(score: int | None) -> str:
    return "abstained" if score is None else f"{score:+d}" if score else "0"
