"""An operator's own prompts, each with a check: no version may pass fewer than the best one that went live before.

Retention asks what the *base* could do. What users have taught since has no base to be compared with; whoever can write
some of it down as prompts with checks keeps it by these (`gate.acceptance_prompts`). The best and not the latest version
is what counts, so that many small steps down are no way around the margin. A version that passes no fewer than the live
one is let through all the same: to refuse it would keep what is no better. Versions that were rolled back are no
measure.
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
    """Each prompt has a random seed of its own that stays the same. At 0 a version that wavers is seen late."""
    n_draws: int = 1
    """Replies to each prompt, each with a seed of its own. Twice as many tell versions apart that are 0.7 times as far
    apart."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of `n` replies to the prompts the candidate's passed `n_passed` times, the best version's before it `n_best`
    (None: there was none), the live one's `n_live` (None: it was not asked).

    `margin` is the share of the replies by which a candidate may be worse; `digest` names the file that the prompts are
    of, and how they were asked.
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
    """Why the candidate must not go live; none where it is as good as the best one, less the margin, or as the live
    one."""
    if acceptance is None:
        return ["insufficient evidence: the acceptance prompts were not asked"]
    if acceptance.n_best is None or acceptance.n_passed >= acceptance.n_best - acceptance.margin * acceptance.n - 1e-9:
        return []
    if acceptance.n_live is not None and acceptance.n_passed >= acceptance.n_live:
        return []
    return [
        f"{acceptance.n_passed} of {acceptance.n} replies to acceptance prompts passed, the best version so far {acceptance.n_best}: "
        f"{100 * acceptance.margin:.3g}% of them are tolerated"
    ]


def best(session: Session, agent: str, digest: str) -> int | None:
    """The most of these prompts that a version of the agent passed which went live and was not rolled back; None for no
    such version."""
    return max(_passed(session, agent, digest, VersionState.LIVE, VersionState.RETIRED), default=None)


def of_live(session: Session, agent: str, digest: str) -> int | None:
    """How many of these prompts the live version passed; None where it was not asked them."""
    return max(_passed(session, agent, digest, VersionState.LIVE), default=None)


def _passed(session: Session, agent: str, digest: str, *states: VersionState) -> list[int]:
    query = select(col(VersionRow.evidence)).where(col(VersionRow.agent) == agent, col(VersionRow.state).in_(states))
    shown: list[Any] = [evidence.get("acceptance") for evidence in session.scalars(query)]
    return [int(each["n_passed"]) for each in shown if each and each["digest"] == digest]
