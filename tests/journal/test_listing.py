"""Lists of turns and feedback, pages after pages, and figures that stay cheap however long the journal is."""

from collections.abc import Sequence
from typing import Any

import pytest

from burnish.journal import Journal
from burnish.journal.blobs import store
from burnish.journal.listing import Place, feedback, figures, judge_figures, label_queue, pairs, turns
from burnish.journal.listing.turns import Fate, Wanted
from burnish.journal.steps import standing
from burnish.journal.summary import summary
from burnish.journal.tables import ComparisonRow, JudgementRow, SampleRow, StepRow, VersionRow
from burnish.records import NextStateKind
from tests.factories import interaction, user
from tests.statements import noted, plans
from tests.turns import add_feedback, add_next_state, add_turn


def add(journal: Journal, name: str, at: float, text: str = "hello", reply: str = "ok", **state: Any) -> str:
    known = {key: state.pop(key) for key in ("version", "agent", "user") if key in state}
    made = interaction([user(text)], reply, interaction_id=name, started_at=at - 0.5, ended_at=at, **known)
    return add_turn(journal, made, **state)


def names(page: turns.Page) -> list[str]:
    return [line["turn"] for line in page.turns]


def walked(journal: Journal, wanted: Wanted, limit: int) -> list[list[str]]:
    """The turns of each page."""
    pages, before = [], None
    while True:
        with journal.read() as session:
            page = turns.page(session, "agent", wanted, before=before, limit=limit)
        pages.append(names(page))
        if page.next is None:
            return pages
        before = Place.read(page.next)


def test_pages_follow_one_another_without_a_gap_or_a_repetition(any_journal: Journal) -> None:
    for i, at in enumerate((1.0, 2.0, 2.0, 2.0, 3.0, 4.0)):
        add(any_journal, f"t{i}", at)
    add(any_journal, "other", 2.5, agent="other")
    assert walked(any_journal, Wanted(), 2) == [["t5", "t4"], ["t3", "t2"], ["t1", "t0"], []]


def test_filters_choose_turns(any_journal: Journal) -> None:
    add(any_journal, "a", 1.0, "The HINGE is broken", version=1, user="ann", spent_step=1)
    add(any_journal, "b", 2.0, "an invoice", "about the hinge", version=2, is_ready=True)
    add(any_journal, "c", 3.0, "an invoice", version=2, skip_reason="stale: 5 versions behind")
    add(any_journal, "d", 4.0, "an invoice", version=2)
    with any_journal.write() as session:
        session.add(
            VersionRow(agent="agent", version=2, parent=1, digest="", state="live", evidence={}, created_at=1.5)
        )
    for wanted, found in (
        (Wanted(text="hinge"), ["b", "a"]),
        (Wanted(version=2), ["d", "c", "b"]),
        (Wanted(user="ann"), ["a"]),
        (Wanted(fate=Fate.TRAINED), ["a"]),
        (Wanted(fate=Fate.READY), ["b"]),
        (Wanted(fate=Fate.DROPPED), ["c"]),
        (Wanted(fate=Fate.WAITING), ["d"]),
        (Wanted(version=2, text="invoice", since=2.5), ["d", "c"]),
    ):
        with any_journal.read() as session:
            assert names(turns.page(session, "agent", wanted)) == found, wanted
            assert turns.found(session, "agent", wanted, 9) == found, wanted


def test_a_rare_match_costs_many_short_calls(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TEXTS", 2)
    for i in range(7):
        add(journal, f"t{i}", float(i), "rare" if i == 0 else "common")
    assert walked(journal, Wanted(text="rare"), 5) == [[], [], [], ["t0"]]
    with journal.read() as session:
        first = turns.page(session, "agent", Wanted(text="rare"))
        assert (first.turns, first.looked_to) == ([], 5.0)
        assert turns.found(session, "agent", Wanted(text="rare"), 5) == ["t0"]


def test_a_versions_turns_are_found_behind_many_others(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WALK", 3)
    for i in range(12):
        add(journal, f"t{i:02}", float(i // 2), version=int(i in (0, 1, 9)))
    found = [name for page in walked(journal, Wanted(version=1), 5) for name in page]
    assert found == ["t09", "t01", "t00"]
    assert [name for page in walked(journal, Wanted(version=1, since=1.0), 5) for name in page] == ["t09"]


def test_a_place_that_no_answer_named_is_refused() -> None:
    assert Place.read("") is None and Place.read(str(Place(0.1, "a:b"))) == Place(0.1, "a:b")
    for text in ("1.0", "x:y"):
        with pytest.raises(ValueError):
            Place.read(text)


def test_a_session_is_told_in_full(journal: Journal) -> None:
    long = "word " * 200
    add(journal, "a", 1.0, long, long, session_id="s")
    add(journal, "b", 2.0, "short", session_id="s")
    with journal.read() as session:
        first, second = turns.of_session(session, "agent", "s")
        assert turns.of_session(session, "other", "s") == []
    assert (first["said"], first["answer"]["content"]) == ([user(long)], long)
    assert len(first["reply"]) == turns.EXCERPT and second["turn"] == "b"


def test_feedback_is_listed_by_kind_with_its_turn(any_journal: Journal) -> None:
    for i in range(3):
        add(any_journal, f"t{i}", float(i), version=i)
    add(any_journal, "x", 9.0, agent="other")
    add_feedback(any_journal, "t0", 1.0)
    add_feedback(any_journal, "t1", None, comment="too long")
    add_feedback(any_journal, "t2", None, correction="Right.")
    add_feedback(any_journal, "x", 1.0)
    add_feedback(any_journal, "t0", -1.0, is_deleted=True)

    def listed(
        said: feedback.Said | None = None, limit: int = 9, before: Place | None = None
    ) -> tuple[list[str], str | None]:
        with any_journal.read() as session:
            found, following = feedback.page(session, "agent", "default", said=said, before=before, limit=limit)
        return [row["interaction_id"] for row in found], following

    assert listed() == (["t2", "t1", "t0"], None)
    assert listed(feedback.Said.COMMENT) == (["t1"], None)
    assert listed(feedback.Said.RATING) == (["t0"], None)
    first, following = listed(limit=2)
    assert (first, listed(before=Place.read(following))[0]) == (["t2", "t1"], ["t0"])
    with any_journal.read() as session:
        assert feedback.page(session, "agent", "foreign", said=None, before=None, limit=9) == ([], None)
        assert len(feedback.found(session, "agent", "default", None, 2)) == 2


def judged(journal: Journal, name: str, score: int | None, votes: Sequence[int | None]) -> None:
    fields: dict[str, Any] = {"judge_id": "base/1", "origin": "next_state", "confidence": 1.0, "n_failed": 0}
    with journal.write() as session:
        session.add(
            JudgementRow(
                judgement_id=f"j-{name}", interaction_id=name, score=score, votes=list(votes), created_at=1.0, **fields
            )
        )


def test_the_queue_holds_what_the_judge_is_unsure_of_and_nobody_has_rated(journal: Journal) -> None:
    for i, (score, votes) in enumerate(((None, [1, None]), (1, [1, -1, 1]), (1, [1, 1, 1]), (None, [None]))):
        judged(journal, add(journal, f"t{i}", float(i)), score, votes)
    add_feedback(journal, "t3", 1.0)
    add_next_state(journal, "t0", NextStateKind.USER_REPLY, user("No."))

    def queued(why: label_queue.Why) -> list[str]:
        with journal.read() as session:
            found, following = label_queue.queue(session, "agent", why, before=None, limit=5)
        assert following is None and all("reward" not in each for each in found)
        return [each["turn"] for each in found]

    assert queued(label_queue.Why.ABSTAINED) == ["t0"]
    assert queued(label_queue.Why.DISAGREED) == ["t1"]


def test_scores_by_version_have_bounds_and_leave_out_what_is_neutral(any_journal: Journal) -> None:
    with any_journal.write() as session:
        step = StepRow(agent="agent", version=1, parent=0, outcome="published", metrics={}, started_at=1.0)
        session.add(step)
        session.flush()
    for i, (version, value, source) in enumerate(
        [(0, -1.0, "user"), (0, 1.0, "judge"), (0, 0.0, "user"), (1, 1.0, "user"), (1, None, None)]
    ):
        name = add(any_journal, f"t{i}", float(i), version=version, spent_step=step.step_id)
        with any_journal.write() as session:
            fields: dict[str, Any] = {"reward": value, "reward_source": source, "record_ids": []}
            session.add(SampleRow(step_id=step.step_id, interaction_id=name, **fields))
    add_feedback(any_journal, add(any_journal, "waits", 9.0, version=1, is_ready=True), -1.0)
    with any_journal.read() as session:
        base, first = figures.scores(session, "agent")
        told = figures.fates(session, "agent")
    assert (base["n"], base["share"], base["by_people"]["n"], base["by_people"]["share"]) == (2, 0.5, 1, 0.0)
    assert (first["n"], first["share"]) == (2, 0.5)
    assert 0.0 <= base["low"] < 0.5 < base["high"] <= 1.0
    assert told == {"n": 6, "counts": {"trained": 5, "ready": 1}, "dropped": {}}


@pytest.mark.parametrize(("good", "bad", "low", "high"), [(8, 2, 0.4902, 0.9433), (10, 0, 0.7225, 1.0)])
def test_the_bounds_are_wilsons(good: int, bad: int, low: float, high: float) -> None:
    found = figures.share(good, bad)
    assert (found["low"], found["high"]) == (low, high)
    assert figures.share(0, 0)["share"] is None


def test_progress_is_the_live_version_beside_the_oldest_with_enough_rated_replies() -> None:
    def row(version: int, good: int, bad: int) -> dict[str, Any]:
        return {"version": version, **figures.share(good, bad)}

    rows = [row(0, 3, 2), row(1, 20, 60), row(2, 60, 20), row(3, 1, 1), row(4, 0, 90)]
    told = figures.progress(rows, 3)  # v0 and v3 have too few, v4 is not live
    assert told == {
        "from": 1, "to": 2, "verdict": "better",
        "sentence": "Yes: 75% of v2's rated replies were good, and 25% of v1's rated replies.",
    }  # fmt: skip
    worse, unclear = figures.progress(rows, None), figures.progress([row(1, 20, 20), row(2, 22, 18)], 2)
    assert worse is not None and (worse["to"], worse["verdict"]) == (4, "worse")
    assert unclear is not None and unclear["verdict"] == "open"
    assert figures.progress(rows[:2], 1) is None


def test_traffic_counts_replies_by_version(any_journal: Journal) -> None:
    for at, version in ((10.0, 1), (99.5, 1), (99.6, 2), (100.0, 2)):
        add(any_journal, f"t{at}", at, version=version)
    with any_journal.read() as session:
        found = figures.traffic(session, "agent", 100.0, 1.0)
    assert len(found) == figures.BUCKETS
    assert found[-1] == {"at": 99.0, "by_version": {"1": 1, "2": 1}}


def test_no_list_reads_the_whole_table(journal: Journal) -> None:
    """SQLite searches by an index wherever it reads turns or feedback, and sorts no more than equal times."""
    add_feedback(journal, add(journal, "t", 1.0), 1.0)
    with noted(journal.engine) as said, journal.read() as session:
        place = Place(5.0, "t")
        turns.page(session, "agent", Wanted(version=0, user="u", fate=Fate.READY, text="x"), before=place)
        turns.of_session(session, "agent", "s")
        feedback.page(session, "agent", "default", said=feedback.Said.COMMENT, before=place, limit=5)
        label_queue.queue(session, "agent", label_queue.Why.DISAGREED, before=place, limit=5)
        label_queue.queue(session, "agent", label_queue.Why.SECOND, before=place, limit=5)
        judge_figures.agreement(session, "agent", "default")
        judge_figures.costs(session, "agent", 0.0)
        pairs.votes(session, "agent", "default", 3)
        figures.traffic(session, "agent", 9.0, 1.0)
        figures.scores(session, "agent")
        figures.fates(session, "agent")
        summary(session, "agent")
        standing(session, "agent")
    for statement, steps in plans(journal.engine, said):
        assert [step for step in steps if step.startswith(("SCAN interaction", "SCAN feedback"))] == [], statement


def test_pairs_are_those_with_different_replies_and_lost_ones_come_first(any_journal: Journal) -> None:
    for number, outcome in enumerate((1, 0, -1, None, 0)):
        name = add(any_journal, f"t{number}", float(number), f"ask {number}")
        replies = [{"role": "assistant", "content": text} for text in ("new", "new" if number == 4 else "old")]
        with any_journal.write() as session:
            new, old = (store(session, reply) for reply in replies)
            facts: dict[str, Any] = {"candidate_digest": new, "baseline_digest": old, "created_at": 1.0}
            session.add(
                ComparisonRow(agent="agent", version=2, interaction_id=name, baseline=1, outcome=outcome, **facts)
            )
    with any_journal.read() as session:
        found = pairs.pairs(session, "agent", 2, outcome=None, limit=10)
        won = pairs.pairs(session, "agent", 2, outcome="won", limit=10)
    assert [(each["turn"], each["outcome"]) for each in found] == [
        ("t2", "lost"), ("t0", "won"), ("t3", "undecided"), ("t1", "tied"),
    ]  # fmt: skip
    first = found[0]
    assert (first["prompt"], first["reply"], first["baseline_reply"], first["baseline"]) == ("ask 2", "new", "old", 1)
    assert won == found[1:2]


def test_the_newest_version_has_a_score_although_many_replies_wait(
    any_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "WAITING", 4)
    for number in range(12):
        add(any_journal, f"t{number:02}", float(number), version=number // 6, is_ready=True)
        add_feedback(any_journal, f"t{number:02}", 1.0)
    with any_journal.read() as session:
        found = figures.scores(session, "agent")
    assert [(row["version"], row["n"]) for row in found] == [(1, 4)]


def test_votes_are_corrections_by_the_text_of_another_versions_reply(any_journal: Journal) -> None:
    def compared(number: int, one: int, other: int, winner: int, text: str = "", **changes: Any) -> None:
        """Both versions answer one request, and somebody corrects the worse reply with the better one's text."""
        for version in (one, other):
            reply, name = f"reply {number} of v{version}", f"t{number}-{version}"
            add(any_journal, name, float(number), f"ask {number}", reply, version=version, request_hash=f"h{number}")
        loser = other if winner == one else one
        add_feedback(
            any_journal, f"t{number}-{loser}", None, correction=text or f" reply {number} of v{winner}", **changes
        )

    for number, winner in enumerate((3, 3, 1)):
        compared(number, 3, 1, winner)
    compared(3, 3, 2, 2)
    compared(4, 2, 1, 2)  # not about v3
    compared(5, 3, 1, 3, "written by hand")
    compared(6, 3, 1, 3, is_deleted=True)
    compared(7, 3, 1, 3, tenant="elsewhere")
    add(any_journal, "alone", 9.0, "ask 0", "reply", version=3)
    with any_journal.read() as session:
        found = pairs.votes(session, "agent", "default", 3)
        assert pairs.votes(session, "other", "default", 3) == []
    assert [(each["baseline"], each["n"], each["share"]) for each in found] == [(2, 1, 0.0), (1, 3, 0.6667)]
    assert found[1]["low"] < 0.66 < found[1]["high"]
