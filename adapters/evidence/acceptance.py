"""Acceptance prompts: an operator's own prompts with checks. No version may pass fewer than the best one that went
live.

The forgetting prompts ask what the *base* could do. They cannot see what users have taught since. An operator who
writes some of that down as prompts with checks protects it (`gate.acceptance_prompts`). The best version is the measure
and not the latest, so that many small losses cannot add up. A version that passes as many as the live one is accepted
too, because refusing it would keep one that is no better. Versions that were rolled back do not count.
"""

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.journal.tables import VersionRow
from burnish.records import VersionState


@dataclass(frozen=True, slots=True)
class Rules:
    """How the prompts are asked."""

    temperature: float = 1.0
    """Each prompt has a fixed random seed of its own. At 0, a version that wavers is noticed late."""
    n_draws: int = 1
    """Replies to each prompt, each with a seed of its own. Doubling the draws cuts the detectable difference by √2."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of `n` replies to the prompts, the candidate's passed `n_passed` times. The best version's before it passed
    `n_best` times (None: there was none), the live version's `n_live` times (None: it was not asked).

    `margin` is the share of the replies by which a candidate may be worse. `digest` names the file of the prompts and
    how they were asked.
    """

    n: int
    n_passed: int
    n_best: int | None
    margin: float
    digest: str
    n_live: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def faults(acceptance: Acceptance | None) -> list[str]:
    """The reasons against the candidate. None if it is as good as the best one, less the margin, or as the live one."""
    if acceptance is None:
        return ["insufficient evidence: the acceptance prompts were not asked"]
    if acceptance.n_best is None or acceptance.n_passed >= acceptance.n_best - acceptance.margin * acceptance.n - 1e-9:
        return []
    if acceptance.n_live is not None and acceptance.n_passed >= acceptance.n_live:
        return []
    return [
        f"{acceptance.n_passed} of {acceptance.n} replies to acceptance prompts passed, the best version so far "
        f"{acceptance.n_best}: "
        f"{100 * acceptance.margin:.3g}% of them are tolerated"
    ]


def best(session: Session, agent: str, digest: str) -> int | None:
    """The most prompts that a version of the agent passed which went live and was not rolled back. None if there is
    none.
    """
    return max(_passed(session, agent, digest, VersionState.LIVE, VersionState.RETIRED), default=None)


def of_live(session: Session, agent: str, digest: str) -> int | None:
    """How many of these prompts the live version passed. None if it was not asked."""
    return max(_passed(session, agent, digest, VersionState.LIVE), default=None)


def _passed(session: Session, agent: str, digest: str, *states: VersionState) -> list[int]:
    query = select(col(VersionRow.evidence)).where(col(VersionRow.agent) == agent, col(VersionRow.state).in_(states))
    shown: list[Any] = [evidence.get("acceptance") for evidence in session.scalars(query)]
    return [int(each["n_passed"]) for each in shown if each and each["digest"] == digest]
