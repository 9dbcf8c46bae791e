"""Agents in the registry: made once, owned by one tenant, with every change in the audit log."""

import pytest

from burnish.adapters.registry import agents, audit
from burnish.errors import Conflict, NotFound, RequestError
from burnish.journal import Journal
from burnish.journal.tables import AgentRow


def made(journal: Journal, name: str, tenant: str = "default", **more: object) -> AgentRow:
    with journal.write() as session:
        return agents.create(session, name, tenant, actor="ana", **more)  # type: ignore[arg-type]


def told(journal: Journal, **wanted: object) -> list[tuple[str, str, str]]:
    with journal.read() as session:
        return [(row.actor, row.action, row.object) for row in audit.entries(session, **wanted)]  # type: ignore[arg-type]


def test_an_agent_is_made_once_and_belongs_to_one_tenant(any_journal: Journal) -> None:
    own = {"learner.min_rows": 8}
    assert made(any_journal, "acme~support", "acme", settings=own).settings == own
    made(any_journal, "acme~support", "acme")  # again: the same agent
    assert told(any_journal) == [("ana", "create", "acme~support")]
    with pytest.raises(Conflict, match="exists with other settings"):
        made(any_journal, "acme~support", "acme", settings={})
    with pytest.raises(Conflict, match="is taken or reserved"):
        made(any_journal, "base", taken=("base",))
    with any_journal.read() as session:
        assert [row.name for row in agents.listed(session)] == ["acme~support"]
        assert agents.listed(session, "other") == []
        assert agents.find(session, "acme~support", "acme").tenant == "acme"
        with pytest.raises(NotFound, match="no agent 'acme~support'"):
            agents.find(session, "acme~support", "other")


def test_the_name_of_an_agent_begins_with_its_tenant(any_journal: Journal) -> None:
    for name, tenant in (("", "default"), ("a/b", "default"), ("-x", "default"), ("a" * 129, "default")):
        with pytest.raises(RequestError, match="expected letters"):
            made(any_journal, name, tenant)
    for name in ("agent@v1", "acme~support", "a~b"):
        with pytest.raises(RequestError, match="expected letters"):
            made(any_journal, name)
    for name in ("acme~", "acme~a~b", "acme~/", "other~support", "acme~" + "a" * 124):
        with pytest.raises(RequestError, match="expected letters"):
            made(any_journal, name, "acme")
    with pytest.raises(RequestError, match="try 'acme~support'"):
        made(any_journal, "support", "acme")
    with pytest.raises(RequestError, match="expected letters"):
        made(any_journal, "a b~support", "a b")
    with any_journal.write() as session:  # made by an earlier release
        agents.ensure_agent(session, "old", "acme")
    made(any_journal, "old", "acme")
    with pytest.raises(Conflict, match="is taken or reserved"):
        made(any_journal, "old")


def test_pauses_holds_and_settings_are_changed_once_and_audited(any_journal: Journal) -> None:
    made(any_journal, "agent")
    for is_paused in (True, True, False):
        with any_journal.write() as session:
            agents.set_paused(session, "agent", is_paused, actor="ana", reason="why")
    with any_journal.write() as session:
        assert agents.end_hold(session, "agent", actor="ana") is None
        agents.find(session, "agent").held = "v3 was worse"
    with any_journal.write() as session:
        assert agents.end_hold(session, "agent", actor="ana") == "v3 was worse"
        assert agents.change_settings(session, "agent", {"learner.rank": 8}, actor="ana").settings == {
            "learner.rank": 8
        }
    with any_journal.write() as session:
        agents.change_settings(session, "agent", {"learner.rank": 8}, actor="ana")
    assert [action for _, action, _ in told(any_journal)] == ["settings", "end-hold", "resume", "pause", "create"]


def test_the_audit_log_is_filtered_and_paged(any_journal: Journal) -> None:
    for name, tenant in (("acme~one", "acme"), ("acme~two", "acme"), ("other~three", "other")):
        made(any_journal, name, tenant)
    assert [target for _, _, target in told(any_journal, tenant="acme")] == ["acme~two", "acme~one"]
    assert told(any_journal, agent="acme~one", actor="ana", action="create") == [("ana", "create", "acme~one")]
    assert told(any_journal, actor="nobody") == told(any_journal, since=4e9) == []
    with any_journal.read() as session:
        (newest,) = audit.entries(session, limit=1)
        assert newest.audit_id is not None
        assert [row.object for row in audit.entries(session, before_id=newest.audit_id)] == ["acme~two", "acme~one"]
