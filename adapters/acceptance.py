"""An operator's own prompts, each with a check: no version may pass fewer than the best one that went live before.

Retention asks what the *base* could do. What users have taught since has no base to be compared with; whoever can write some of
it down as prompts with checks keeps it by these (`gate.acceptance`). The best and not the latest version is what counts, so that
many small steps down are no way around the margin. Versions that were rolled back are no measure.
"""

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from sqlmodel import Session

from burnish.journal.tables import VersionRow
from burnish.records import VersionState


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of `n` replies to the prompts the candidate's passed `n_passed` times, the best version's before it `n_best` (None: there was none).

    `margin` is the share of the replies by which a candidate may be worse; `digest` names the file that the prompts are of, and how
    they were asked.
    """

    n: int
    n_passed: int
    n_best: int | None
    margin: float
    digest: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def faults(acceptance: Acceptance | None) -> list[str]:
    """Why the candidate must not go live; none where it is as good as the best one, less the margin."""
    if acceptance is None:
        return ["insufficient evidence: the acceptance prompts were not asked"]
    if acceptance.n_best is None or acceptance.n_passed >= acceptance.n_best - acceptance.margin * acceptance.n - 1e-9:
        return []
    return [
        f"{acceptance.n_passed} of {acceptance.n} replies to acceptance prompts passed, the best version so far {acceptance.n_best}: "
        f"{acceptance.margin:.0%} of them are tolerated"
    ]


def best(session: Session, agent: str, digest: str) -> int | None:
    """The most of these prompts that a version of the agent passed which went live and was not rolled back; None for no such version."""
    version: Any = VersionRow
    states = (VersionState.LIVE, VersionState.RETIRED)
    query = select(version.evidence).where(version.agent == agent, version.state.in_(states))
    shown = [evidence.get("acceptance") for evidence in session.scalars(query)]
    return max((int(each["n_passed"]) for each in shown if each and each["digest"] == digest), default=None)
