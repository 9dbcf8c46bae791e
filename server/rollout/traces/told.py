"""How far the journal has been told, as it is kept between two looks and over a restart."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.journal.listing import Place
from burnish.journal.tables import AuditRow, StepRow


@dataclass(frozen=True, slots=True)
class Told:
    """`since` is the time of the first look. `open_steps` are steps before `step_id` that had not ended."""

    since: float
    turns: Place
    verdicts: Place
    feedback: Place
    step_id: int
    audit_id: int
    open_steps: tuple[int, ...] = ()

    @classmethod
    def until(cls, session: Session, now: float) -> "Told":
        """Everything up to now counts as told."""
        place = Place(now, "")
        return cls(now, place, place, place, _last(session, StepRow.step_id), _last(session, AuditRow.audit_id))

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> "Told":
        """What `written` made. Raises an error of `burnish.files.UNREADABLE`."""
        return cls(
            since=float(tree["since"]),
            turns=_place(tree["turns"]),
            verdicts=_place(tree["verdicts"]),
            feedback=_place(tree["feedback"]),
            step_id=int(tree["step_id"]),
            audit_id=int(tree["audit_id"]),
            open_steps=tuple(int(number) for number in tree["open_steps"]),
        )

    def written(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def but_not_before(self, earliest: float) -> "Told":
        """The same, and turns, verdicts and feedback that are older count as told."""
        least = Place(earliest, "")
        turns, verdicts, feedback = (max(least, place) for place in (self.turns, self.verdicts, self.feedback))
        return replace(self, turns=turns, verdicts=verdicts, feedback=feedback)


def _place(tree: Any) -> Place:
    at, name = tree
    return Place(float(at), str(name))


def _last(session: Session, column: Any) -> int:
    return int(session.connection().execute(select(func.max(col(column)))).scalar_one() or 0)
