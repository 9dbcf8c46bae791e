"""The answers of an operator's verbs, equal on the command line and in the admin API."""

from typing import Any

from burnish.journal.tables import AgentRow
from burnish.records import VersionName


def described(row: AgentRow, pointed: dict[int, list[str]]) -> dict[str, Any]:
    """An agent with the targets of its aliases (`burnish.adapters.registry.lineage.aliases_of`)."""
    aliases = {alias: number for number, names in pointed.items() for alias in names}
    return {**row.model_dump(mode="json"), "aliases": aliases}


def hold_ended(agent: str, held: str | None) -> str:
    """The end of a hold. `held` is the reason for the hold, None if there was none."""
    return f"{agent} was not held" if held is None else f"the hold on {agent} is ended; it was held: {held}"


def pinned(agent: str, version: int, is_pinned: bool, is_new: bool) -> str:
    """A pin that was set or removed."""
    state = "pinned" if is_pinned else "not pinned"
    return f"{VersionName(agent, version)} is {state}{'' if is_new else ' already'}"


def imported(agent: str, version: int) -> str:
    """A finished import."""
    return f"{VersionName(agent, version)} is imported and waits for the gate's trial"


def paused(agent: str, is_paused: bool) -> str:
    """A paused or resumed learner."""
    return f"{agent} {'learns no more until `burnish learner resume`' if is_paused else 'learns again'}"


def asked(agent: str, n_ready: int) -> str:
    """A requested step."""
    return f"{agent} takes a step on {n_ready} ready turn{'s' if n_ready != 1 else ''} when its learner looks next"
