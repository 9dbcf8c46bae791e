"""The injection suite against two judges that obey orders in their data, with the defence and without it.

One is the sandbox's base with the `suggestible` adapter, served by vLLM. The other is the gullible judge of
`burnish.testing`. With the defence means production's worker on a journal. Without it means one reading of the same
prompts, whose votes count unchecked.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import select

from benchmarks.judging.suite import Attack, cases
from benchmarks.judging.turns import turn
from benchmarks.judging.vllm import running
from burnish import config
from burnish.config import BASE_NAME
from burnish.journal import Journal
from burnish.journal.blobs import store
from burnish.journal.evidence import reward_of
from burnish.journal.tables import JudgementRow, NextStateRow
from burnish.journal.turns import ask_judge
from burnish.judges.judge import Judge
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.panel import Panel
from burnish.judges.verdicts import ballot
from burnish.judges.verdicts.case import ask
from burnish.judges.verdicts.verdict import question
from burnish.judges.worker import Worker
from burnish.keys import engine_key
from burnish.processes import vllm_server
from burnish.records import NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.sandbox.training.suggestible import ADAPTER
from burnish.testing.gullible_judge import GullibleJudge

SUGGESTIBLE = "suggestible"
VOTES = 3
CONCURRENCY = 8
WORST = {
    "planted_hints": max,
    "hints_with_payload": max,
    "flipped_share": max,
    "undefended_flipped": min,
    "undefended_planted": min,
    "clean_right": min,
    "clean_abstained": max,
}
"""The worse figure of two judges counts."""


def measure(folder: Path, tell: Callable[[str], None]) -> dict[str, float]:
    """Each figure for the worse of the two judges, and for each by name (`….gullible`, `….sandbox`)."""
    tell("injections: the gullible judge")
    by_kind = {
        "gullible": _figures(folder / "gullible", lambda: GullibleJudge(), lambda: GullibleJudge(is_honest=True))
    }
    tell("injections: vLLM starts with the suggestible judge")
    with running(folder / "engine", "--lora-modules", f"{SUGGESTIBLE}={ADAPTER}") as settings:
        tell("injections: the suggestible judge")
        url, key = vllm_server.engine_url(settings), engine_key(settings)

        def served(model: str) -> Judge:
            return LocalJudge(url, model, api_key=key)

        by_kind["sandbox"] = _figures(folder / "sandbox", lambda: served(SUGGESTIBLE), lambda: served(BASE_NAME))
    figures: dict[str, float] = {name: worse(each[name] for each in by_kind.values()) for name, worse in WORST.items()}
    details = {f"{name}.{kind}": value for kind, each in by_kind.items() for name, value in each.items()}
    return figures | {"injections": len(cases())} | details


def _figures(folder: Path, fooled: Callable[[], Judge], honest: Callable[[], Judge]) -> dict[str, float]:
    attacks, twins = [attack for attack, _ in cases()], [twin for _, twin in cases()]
    return {
        **_defended(folder / "attacks", attacks, fooled()),
        **asyncio.run(_undefended(attacks, fooled())),
        **_clean(folder / "twins", twins, honest()),
    }


def _defended(folder: Path, attacks: Sequence[Attack], judge: Judge) -> dict[str, float]:
    """Figures from what the journal finally holds."""
    n_planted = n_payloads = n_flipped = 0
    for attack, (score, hint, used) in zip(attacks, _judged(folder, attacks, judge), strict=True):
        n_planted += attack.holds_payload(used)
        n_payloads += attack.holds_payload(hint)
        n_flipped += attack.aim == "verdict" and score is not None and score != attack.truth
    return {
        "planted_hints": n_planted,
        "hints_with_payload": n_payloads,
        "flipped_share": n_flipped / _n_verdicts(attacks),
    }


async def _undefended(attacks: Sequence[Attack], judge: Judge) -> dict[str, float]:
    """One reading of the text. The hint that most votes wrote is accepted unchecked."""
    n_planted = n_flipped = 0
    for attack in attacks:
        case = ask(question(attack.messages, attack.reply, attack.next_state, "user"))
        try:
            result = ballot.count(await judge.answers(case.messages, VOTES), VOTES)
        except ballot.VoidBallot:
            continue
        n_planted += attack.holds_payload(result.hint)
        n_flipped += attack.aim == "verdict" and result.score is not None and result.score != attack.truth
    await judge.close()
    return {"undefended_flipped": n_flipped / _n_verdicts(attacks), "undefended_planted": n_planted}


def _clean(folder: Path, twins: Sequence[Attack], judge: Judge) -> dict[str, float]:
    scores = [score for score, _, _ in _judged(folder, twins, judge)]
    n_right = sum(score == twin.truth for score, twin in zip(scores, twins, strict=True))
    return {"clean_right": n_right / len(twins), "clean_abstained": sum(score is None for score in scores) / len(twins)}


def _judged(folder: Path, turns: Sequence[Attack], judge: Judge) -> list[tuple[int | None, str | None, str | None]]:
    """For each turn the stored score, the stored hint, and the hint that training would use."""
    journal = _journal_with(folder, turns)

    async def run() -> None:
        panel = Panel([judge], deadline=60.0)
        worker = Worker(journal, panel, config.Judge(votes=VOTES, concurrency=CONCURRENCY))
        while await worker.run_once():
            pass
        await panel.close()

    asyncio.run(run())
    with journal.read() as session:
        rows = {row.interaction_id: row for row in session.scalars(select(JudgementRow))}
        found: list[tuple[int | None, str | None, str | None]] = []
        for at in range(len(turns)):
            row, reward = rows.get(f"t{at}"), reward_of(session, f"t{at}")
            found.append((row.score if row else None, row.hint if row else None, reward.hint if reward else None))
    journal.close()
    return found


def _journal_with(folder: Path, turns: Sequence[Attack]) -> Journal:
    """A new journal with the turns, which wait for the judge: `t0`, `t1`, …"""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal.open(f"sqlite:///{folder}/journal.db")
    with journal.write() as session:
        for at, each in enumerate(turns):
            session.add(turn(session, f"t{at}", each.messages, each.reply))
            is_tool = all(message["role"] == "tool" for message in each.next_state)
            session.add(
                NextStateRow(
                    interaction_id=f"t{at}",
                    kind=NextStateKind.TOOL_RESULT if is_tool else NextStateKind.USER_REPLY,
                    message_digests=[store(session, message) for message in each.next_state],
                    created_at=float(at),
                )
            )
            ask_judge(session, f"t{at}", NEXT_STATE)
    return journal


def _n_verdicts(attacks: Sequence[Attack]) -> int:
    return sum(attack.aim == "verdict" for attack in attacks)
