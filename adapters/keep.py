"""Retention: which versions' files may go. A pure function of what the registry, the gateways and the settings say.

Never removed, whatever the settings: what an alias names (live, previous, canary), what is undecided, pinned, running as a canary
or as its baseline, loaded on an engine, named by a request under way or by a load job that waits, or the parent of an open step
(the next step's parent is the live version). Unknown is never a reason to remove.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from burnish.records import VersionState

DAY = 86_400.0
_BAD: dict[str, str] = {VersionState.REFUSED: "refused", VersionState.ROLLED_BACK: "rolled back"}


@dataclass(frozen=True, slots=True)
class Kept:
    """A version as retention sees it. `decided_at` is when it went live or was refused, None while it is undecided."""

    number: int
    state: str
    decided_at: float | None
    is_pinned: bool = False
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class Uses:
    """Who needs which version now, by number. `in_flight` is None where a gateway's report cannot be read."""

    aliases: Collection[int] = ()
    canaries: Collection[int] = ()
    loaded: Collection[int] = ()
    in_flight: Collection[int] | None = ()
    jobs: Collection[int] = ()
    step_parents: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is removed and what is kept, by number, each with the reason in words. Versions removed earlier are in neither."""

    remove: dict[int, str] = field(default_factory=dict)
    keep: dict[int, str] = field(default_factory=dict)


def plan(versions: Sequence[Kept], uses: Uses, *, keep_live: int, keep_refused_days: float, now: float) -> Plan:
    """Of the versions that once were live and are of no use any more the newest `keep_live` stay; bad ones stay so many days."""
    made = Plan()
    retired: list[Kept] = []
    for version in sorted(versions, key=lambda version: version.number):
        if version.is_removed:
            continue
        if (why := _needed(version, uses)) is not None:
            made.keep[version.number] = why
        elif version.state == VersionState.RETIRED:
            retired.append(version)
        elif version.state in _BAD and version.decided_at is not None:
            age = (now - version.decided_at) / DAY
            where = made.keep if age < keep_refused_days else made.remove
            where[version.number] = f"{_BAD[version.state]}, decided {age:.1f} days ago"
        else:
            made.keep[version.number] = f"is {version.state}"
    # the order of going live, not of numbers: a rollback's target counts as new
    retired.sort(key=lambda version: (version.decided_at or 0.0, version.number), reverse=True)
    for place, version in enumerate(retired, 1):
        where = made.keep if place <= keep_live else made.remove
        where[version.number] = f"once live, {place} of the last {keep_live}" if place <= keep_live else "once live, long ago"
    return made


def _needed(version: Kept, uses: Uses) -> str | None:
    """Why a version stays whatever the settings say; None where nothing holds it."""
    number = version.number
    if uses.in_flight is None:
        return "nobody knows what the gateways are answering"
    reasons = (
        (number in uses.aliases, "an alias names it"),
        (number in uses.canaries, "a canary needs it"),
        (number in uses.in_flight, "a request is under way on it"),
        (number in uses.loaded, "engines have it loaded"),
        (number in uses.jobs, "it waits to be loaded"),
        (number in uses.step_parents, "a step starts from it"),
        (version.is_pinned, "pinned"),
        (version.state not in (VersionState.RETIRED, *_BAD), f"is {version.state}"),
    )
    return next((why for holds, why in reasons if holds), None)
