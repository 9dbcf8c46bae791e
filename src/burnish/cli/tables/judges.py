"""Figures of `burnish judges` as tables and as JSON."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape

from burnish.cli.common import counted
from burnish.cli.tables import Listing

if TYPE_CHECKING:
    from burnish.judges.calibration.calibrate import Calibration
    from burnish.judges.calibration.check import Checked
    from burnish.judges.calibration.rejudge import Again
    from burnish.judges.calibration.standings import Standing

MAX_ROWS = 20
"""Turns in a table. --json lists all."""
_FIGURES = (
    ("accuracy", "accuracy"),
    ("right_of_all", "correct, of all cases"),
    ("false_positive_rate", "false positives"),
    ("kappa", "Cohen's κ"),
    ("hint_agreement", "hint or none, as labelled"),
    ("calibration_error", "calibration error"),
    ("abstained", "abstained"),
    ("failed", "failed"),
)


def standings_table(found: "Sequence[Standing]", states: Mapping[str, str]) -> Listing:
    table = Listing(
        *("judge", "verdicts", "abstained", "unreadable votes", "users agree", "last", "fitness"),
        least=("unreadable votes", "last"),
        title="judges in the journal",
    )
    for each in found:
        report = each.to_json()
        agreement = (
            "no ratings" if each.agreement is None else f"{each.n_agreed} of {each.n_rated}: {_agreement(report)}"
        )
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.last_at))
        counts = (str(each.n_verdicts), str(each.n_abstained), str(each.n_failed_votes))
        table.add_row(escape(each.judge_id), *counts, agreement, at, states.get(each.judge_id, ""))
    return table


def queue_table(found: Sequence[Mapping[str, Any]]) -> Listing:
    table = Listing("turn", "asked", "reply", "what came back", least=("what came back",), title="turns to label")
    for row in found:
        came = " / ".join(str(message.get("content") or "") for message in row["next_state"])
        table.add_row(row["turn"], *(escape(text[:100]) for text in (row["prompt"], row["reply"], came)))
    return table


def cost_table(found: Sequence[Mapping[str, Any]]) -> Listing:
    table = Listing("day", "judge", "asked for", title="what judges cost")
    for name in ("votes", "prompt tokens", "answer tokens", "seconds"):
        table.add_column(name, justify="right")
    for row in found:
        counts = (row["n_votes"], row["n_prompt_tokens"], row["n_answer_tokens"], row["seconds"])
        table.add_row(row["day"], escape(row["model"]), row["purpose"], *(f"{count:,}" for count in counts))
    return table


def check_table(model: str, source: str, found: "Checked", remedy: str) -> Group:
    from burnish.judges.calibration import fitness

    figures = found.figures
    table = Listing(
        "figure",
        "value",
        "needed",
        title=f"{escape(model)} on {escape(source)} ({figures.n_cases} of {figures.n_golden} cases)",
        title_justify="left",
    )
    table.add_row("answers that can be read", _number(figures.readable), f"≥ {fitness.MIN_READABLE:g}")
    for words, value, interval, needed in (
        ("Cohen's κ", figures.kappa, figures.kappa_interval, f"lower bound ≥ {fitness.MIN_KAPPA:g}"),
        (
            "bad replies praised",
            figures.false_positive_rate,
            figures.false_positive_interval,
            f"upper bound ≤ {fitness.MAX_FALSE_POSITIVES:g}",
        ),
    ):
        bounds = f"  (95 %: {_interval(interval)})" if interval else ""
        table.add_row(words, _number(value) + bounds, needed)
    table.add_row("hint or none, as labelled", _number(figures.hint_agreement), "")
    outcome = f"the judge is {found.state}: {escape(found.reason)}".removesuffix(": ")
    return Group(table, outcome, *([f"[dim]remedy: {escape(remedy)}[/]"] if remedy else []))


def calibration_tables(report: "Calibration", source: str) -> Group:
    figures = report.figures
    table = Listing(
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
    table.add_row("decided by a rule", str(figures["by_rule"]))
    table.add_row("votes read / asked", f"{figures['votes_read']:,} / {figures['votes_asked']:,}")
    table.add_row("tokens, prompts / answers", f"{figures['prompt_tokens']:,} / {figures['answer_tokens']:,}")
    table.add_row("time", f"{figures['seconds']:.1f} s, {figures['votes_per_s'] or 0:,.1f} votes/s")
    confusion = Listing(
        "label", "+1", "0", "−1", "abstained", "failed", title="confusion: verdicts by label", title_justify="left"
    )
    for right, row in report.confusion.items():
        confusion.add_row(
            f"{right:+d}" if right else "0", *(str(row[verdict]) for verdict in (1, 0, -1, "abstained", "failed"))
        )
    parts: list[RenderableType] = [table, confusion]
    if wrong := report.wrong:
        listed = Listing("case", "label", "verdict", "next state", title="wrong verdicts", title_justify="left")
        for number, case, opinion in wrong[:MAX_ROWS]:
            next_state = " / ".join(str(message.get("content") or "") for message in case.next_state)
            listed.add_row(
                str(number), f"{case.score:+d}", str(opinion.outcome), escape((opinion.error or next_state)[:100])
            )
        parts += [
            listed,
            *([f"[dim]{len(wrong) - MAX_ROWS} more; --json lists all[/]"] if len(wrong) > MAX_ROWS else []),
        ]
    return Group(*parts)


def calibration_json(report: "Calibration") -> dict[str, Any]:
    confusion = {str(right): {str(verdict): n for verdict, n in row.items()} for right, row in report.confusion.items()}
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
    table = Listing("before", *(f"now {name}" for name in names), title=f"judged again by {escape(figures['judge'])}")
    for old in names:
        row = figures["table"].get(old, {})
        table.add_row(old, *(str(row.get(new, 0)) for new in names))
    agreement = "not defined" if figures["agreement"] is None else _agreement(figures)
    words = [
        f"agreement {agreement}, κ {_number(figures['kappa'])}, "
        f"over {counted(figures['both_gave_a_verdict'], 'turn')} with two verdicts"
    ]
    words.append(
        f"{counted(figures['turns'], 'turn')} judged again, {figures['failed']} failed, {figures['changed']} changed"
    )
    if "stored" in figures:
        words.append(f"{counted(figures['stored'], 'new verdict')} stored")
    parts: list[RenderableType] = [table, "\n".join(words)]
    if changed := [each for each in again if each.has_changed]:
        listed = Listing("turn", "of", "before", "by", "now", least=("by", "of"), title="changed")
        for each in changed[:MAX_ROWS]:
            now = each.new.result.score if each.new.result else None
            listed.add_row(
                each.old.turn, each.old.origin, _score(each.old.score), escape(each.old.judge_id), _score(now)
            )
        parts += [
            listed,
            *([f"[dim]{len(changed) - MAX_ROWS} more; --json lists all[/]"] if len(changed) > MAX_ROWS else []),
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


def _agreement(report: Mapping[str, Any]) -> str:
    return f"{report['agreement']:.3f} (95 %: {_interval(report['agreement_interval'])})"


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}"


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"


def _score(score: int | None) -> str:
    return "abstained" if score is None else f"{score:+d}" if score else "0"
