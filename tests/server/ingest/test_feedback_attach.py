"""Feedback and its targets: attached now or later, the latest one counts, withdrawn or expired."""

import time
from typing import Any

import pytest

from burnish.journal import Journal
from burnish.journal.evidence import reward_of
from burnish.journal.summary import summary
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeJob, KeyRow
from burnish.journal.turns import record_judgement
from burnish.records import Feedback, FeedbackSource, TargetKind
from burnish.rewards import NEXT_STATE
from burnish.server.ingest.ingester import Ingester
from tests.factories import feedback, interaction, judgement, user
from tests.server.ingest.pen import FOREVER, Pen, asked, feedback_targets, follow, ingest

TURN, SESSION = TargetKind.TURN, TargetKind.SESSION


def stored(journal: Journal, name: str = "f") -> FeedbackRow:
    with journal.read() as session:
        return session.get_one(FeedbackRow, name)


def ready(journal: Journal) -> dict[str, bool]:
    with journal.read() as session:
        return {row.interaction_id: row.is_ready for row in session.query(InteractionRow).all()}


def counts(journal: Journal) -> dict[str, int]:
    with journal.read() as session:
        found = summary(session, "agent")
    return {name.removeprefix("feedback_"): number for name, number in found.items() if name.startswith("feedback_")}


def said(target: str, rating: float | None = 1.0, **changes: Any) -> Feedback:
    return feedback(target, rating, **{"feedback_id": "f", "created_at": 2000.0} | changes)


def taken_back(name: str = "f", **changes: Any) -> Feedback:
    return feedback("", None, **{"feedback_id": name, "is_deleted": True, "created_at": 2500.0} | changes)


@pytest.fixture(params=["before", "after"])
def comes(request: pytest.FixtureRequest) -> str:
    """Whether feedback is read before its target or after it."""
    return str(request.param)


def in_order(journal: Journal, pen: Pen, comes: str, opinion: Feedback, *turns: Any) -> None:
    groups = [[opinion], list(turns)] if comes == "before" else [list(turns), [opinion]]
    for number, group in enumerate(groups):
        pen.write(*group, gateway=f"g{number}")
        ingest(journal, pen)


@pytest.mark.parametrize("about", list(TargetKind))
@pytest.mark.parametrize(
    ("agent", "is_attached"), [("agent", False), ("second", True), ("second.u-0123456789ab", True)]
)
def test_a_key_that_is_limited_to_some_agents_speaks_of_their_replies_alone(
    any_journal: Journal, pen: Pen, comes: str, about: TargetKind, agent: str, is_attached: bool
) -> None:
    with any_journal.write() as session:
        given = {"digest": "d", "tenant": "default", "scopes": ["feedback"], "created_at": 1.0}
        session.add(KeyRow(key_id="key-1", agents=["second"], **given))
    turn = interaction([user("hi")], interaction_id="t", request_id="t", agent=agent, quoted_session="s")
    opinion = said("s" if about is SESSION else "t", about=about, created_at=3000.0)
    in_order(any_journal, pen, comes, opinion, turn)
    assert feedback_targets(any_journal) == {"f": "t" if is_attached else None}


def test_an_opinion_on_a_request_joins_its_first_choice(any_journal: Journal, pen: Pen, comes: str) -> None:
    choices = [
        interaction(
            [user("hi")], interaction_id=f"chatcmpl-r{tail}", request_id="r", choice=i, n_choices=2, ended_at=1500.0
        )
        for i, tail in enumerate(["", "#1"])
    ]
    in_order(any_journal, pen, comes, said("r", None, about=TURN, comment="no bold"), *choices)
    assert stored(any_journal).interaction_id == "chatcmpl-r"
    assert asked(any_journal) == {"chatcmpl-r|feedback"}


def test_an_opinion_on_a_session_joins_its_last_main_reply(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "a", quoted_session="chat 7", interaction_id="one")
    second = pen.say(follow(first, user("on")), "b", quoted_session="chat 7", interaction_id="two")
    pen.say([user("a title for it")], "c", quoted_session="chat 7", interaction_id="title", turn_type="side")
    pen.say(follow(second, user("more")), "d", quoted_session="chat 8", interaction_id="elsewhere")
    pen.write(said("chat 7", about=SESSION, comment="no bold"))
    ingest(any_journal, pen)
    assert stored(any_journal).interaction_id == "two"
    assert "two|feedback" not in asked(any_journal), "words on a whole session are no hint for one reply"


def test_an_opinion_on_a_session_waits_for_its_first_main_reply(any_journal: Journal, pen: Pen) -> None:
    pen.write(said("chat 7", about=SESSION), gateway="b")
    pen.say([user("a title for it")], "c", quoted_session="chat 7", turn_type="side", ended_at=2001.0)
    ingest(any_journal, pen)
    assert stored(any_journal).interaction_id is None
    pen.say([user("hi")], "a", quoted_session="chat 7", interaction_id="one", ended_at=2002.0)
    pen.say([user("hi")], "a", quoted_session="chat 7", interaction_id="later", ended_at=2003.0)
    ingest(any_journal, pen)
    assert stored(any_journal).interaction_id == "one"


def test_a_session_is_known_by_our_name_for_it_too(any_journal: Journal, pen: Pen) -> None:
    pen.write(said("s-r9", about=SESSION), gateway="b")
    ingest(any_journal, pen)
    pen.say([user("hi")], "a", interaction_id="nine", request_id="r9", ended_at=2002.0)
    pen.write(said("s-r9", about=SESSION, feedback_id="g", created_at=2003.0), gateway="b")
    ingest(any_journal, pen)
    assert feedback_targets(any_journal) == {"f": "nine", "g": "nine"}


def test_of_sessions_that_share_a_name_the_latest_is_meant(any_journal: Journal, pen: Pen) -> None:
    for number, key in enumerate(["key-1", "key-2", "key-3"]):
        tenant = "other" if key == "key-3" else "default"
        pen.say([user("hi")], "a", quoted_session="mine", key_id=key, interaction_id=f"t{number}", tenant=tenant)
    pen.write(said("mine", about=SESSION))
    ingest(any_journal, pen)
    assert stored(any_journal).interaction_id == "t1"


@pytest.mark.parametrize("about", [TURN, SESSION])
def test_another_tenants_request_or_session_is_never_joined(
    any_journal: Journal, pen: Pen, comes: str, about: TargetKind
) -> None:
    turn = interaction([user("hi")], interaction_id="t", request_id="x", quoted_session="x", ended_at=1500.0)
    in_order(any_journal, pen, comes, said("x", about=about, tenant="other"), turn)
    assert stored(any_journal).interaction_id is None


def test_a_name_of_one_kind_is_none_of_another(any_journal: Journal, pen: Pen, comes: str) -> None:
    turn = interaction([user("hi")], interaction_id="t", request_id="r", quoted_session="s", ended_at=1500.0)
    in_order(any_journal, pen, comes, said("t", about=TURN), turn)
    for name, about in (("r", TargetKind.RESPONSE), ("r", SESSION), ("s", TURN), ("s", TargetKind.RESPONSE)):
        pen.write(said(name, about=about, feedback_id=f"{name} {about}"), gateway="more")
    ingest(any_journal, pen)
    assert set(feedback_targets(any_journal).values()) == {None}


def test_an_opinion_on_a_session_settles_each_turn_that_is_not_spent(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "a", quoted_session="s", interaction_id="one")
    pen.say(follow(first, user("on")), "b", quoted_session="s", interaction_id="two")
    ingest(any_journal, pen)
    with any_journal.write() as session:  # rewards that nobody has read since
        for name in ("one", "two"):
            session.add(FeedbackRow(**columns_of(said(name, 1.0, feedback_id=name)), interaction_id=name))
        session.query(InteractionRow).filter_by(interaction_id="one").update({"spent_step": 1})
        session.query(JudgeJob).delete()
    pen.write(said("s", about=SESSION))
    ingest(any_journal, pen)
    assert ready(any_journal) == {"one": False, "two": True}


@pytest.mark.parametrize("stops_at", [1, 2])
def test_the_later_word_counts_in_whatever_order_it_is_read(any_journal: Journal, pen: Pen, stops_at: int) -> None:
    turn = pen.say([user("hi")], "a")
    words = [said(turn.interaction_id, 1.0, created_at=2001.0), said(turn.interaction_id, -1.0, created_at=2002.0)]
    for number, word in enumerate(words if stops_at == 1 else reversed(words)):
        pen.write(word, gateway=f"g{number}")
        ingest(any_journal, pen)
    assert (stored(any_journal).rating, stored(any_journal).created_at) == (-1.0, 2002.0)
    with any_journal.read() as session:
        reward = reward_of(session, turn.interaction_id)
    assert reward is not None and reward.value == -1.0


def test_a_word_that_is_turned_to_another_reply_leaves_the_first(any_journal: Journal, pen: Pen) -> None:
    one, two = pen.say([user("hi")], "a", interaction_id="one"), pen.say([user("yo")], "b", interaction_id="two")
    pen.write(said(one.interaction_id, 1.0, comment="short"))
    ingest(any_journal, pen)
    assert asked(any_journal) == {"one|feedback"}
    pen.write(said(two.interaction_id, 1.0, created_at=2001.0))
    ingest(any_journal, pen)
    assert ready(any_journal) == {"one": False, "two": True}
    assert asked(any_journal) == set(), "the words that the judge was to read are gone"


def test_what_is_said_of_a_key_cannot_be_overwritten_by_another_tenant(any_journal: Journal, pen: Pen) -> None:
    turn = pen.say([user("hi")], "a")
    pen.write(said(turn.interaction_id, 1.0), said(turn.interaction_id, -1.0, tenant="other", created_at=2001.0))
    pen.write(taken_back(tenant="other"))
    ingest(any_journal, pen)
    assert (stored(any_journal).rating, stored(any_journal).is_deleted) == (1.0, False)


def test_what_is_taken_back_stays_readable(any_journal: Journal, pen: Pen, comes: str) -> None:
    turn = pen.say([user("hi")], "a", interaction_id="t")
    pen.write(said("t", -1.0, comment="no bold"))
    ingest(any_journal, pen)
    assert asked(any_journal) == {"t|feedback"}
    pen.write(taken_back(), gateway="b")
    ingest(any_journal, pen)
    row = stored(any_journal)
    assert (row.is_deleted, row.rating, row.comment, row.target, row.created_at) == (True, -1.0, "no bold", "t", 2500.0)
    assert asked(any_journal) == set(), "the judge was not asked yet, and need not be"
    assert counts(any_journal) == {"pending": 0, "expired": 0, "deleted": 1}
    late = said("t", 1.0, created_at=2400.0)
    pen.write(late if comes == "before" else taken_back(created_at=2600.0), gateway="c")
    ingest(any_journal, pen)
    assert stored(any_journal).is_deleted
    pen.write(said(turn.interaction_id, 1.0, created_at=2700.0), gateway="d")
    ingest(any_journal, pen)
    assert (stored(any_journal).is_deleted, stored(any_journal).rating) == (False, 1.0)


def test_what_is_taken_back_counts_no_longer(any_journal: Journal, pen: Pen) -> None:
    pen.say([user("hi")], "a", interaction_id="t")
    pen.write(said("t", -1.0))
    ingest(any_journal, pen)
    assert ready(any_journal) == {"t": True}
    pen.write(taken_back(), gateway="b")
    ingest(any_journal, pen)
    assert ready(any_journal) == {"t": False}
    with any_journal.read() as session:
        assert reward_of(session, "t") is None


def test_what_is_taken_back_before_it_is_read_never_counts(any_journal: Journal, pen: Pen) -> None:
    pen.write(taken_back())
    ingest(any_journal, pen)
    pen.write(said("t", 1.0), gateway="b")
    pen.write(interaction([user("hi")], interaction_id="t", ended_at=3000.0), gateway="c")
    ingest(any_journal, pen)
    assert (stored(any_journal).is_deleted, stored(any_journal).interaction_id) == (True, None)
    assert ready(any_journal) == {"t": False}


def test_what_waits_too_long_expires_and_is_never_attached(any_journal: Journal, pen: Pen) -> None:
    now = time.time()
    pen.write(said("t", created_at=now - 120.0), said("u", feedback_id="young", created_at=now - 30.0))
    pen.write(said("x", feedback_id="gone", created_at=now - 119.0), taken_back("gone", created_at=now - 118.0))
    impatient = Ingester(any_journal, pen.folder, session_timeout=FOREVER, feedback_ttl=60.0)
    impatient.run_once()
    assert counts(any_journal) == {"pending": 1, "expired": 1, "deleted": 1}
    expired_at = stored(any_journal).expired_at
    assert expired_at is not None and expired_at >= now
    turns = [interaction([user(name)], interaction_id=name, ended_at=now - 20.0) for name in ("t", "u", "x")]
    pen.write(*turns, gateway="b")
    ingest(any_journal, pen)
    assert feedback_targets(any_journal) == {"f": None, "young": "u", "gone": None}
    assert counts(any_journal) == {"pending": 0, "expired": 1, "deleted": 1}
    pen.write(said("t", created_at=now - 120.0), gateway="c")  # the same record once more
    ingest(any_journal, pen)
    assert (stored(any_journal).expired_at, stored(any_journal).interaction_id) == (expired_at, None)
    pen.write(said("t", created_at=now - 10.0), gateway="d")  # new feedback, which finds its reply
    ingest(any_journal, pen)
    assert (stored(any_journal).expired_at, stored(any_journal).interaction_id) == (None, "t")


def test_what_is_attached_never_expires(any_journal: Journal, pen: Pen) -> None:
    pen.say([user("hi")], "a", interaction_id="t")
    pen.write(said("t", created_at=2000.0))
    Ingester(any_journal, pen.folder, session_timeout=FOREVER, feedback_ttl=60.0).run_once()
    assert counts(any_journal) == {"pending": 0, "expired": 0, "deleted": 0}


def test_a_users_correction_asks_the_judge_and_a_verifiers_words_do_not(any_journal: Journal, pen: Pen) -> None:
    for name in ("a", "b", "c"):
        pen.say([user(name)], "x", interaction_id=name)
    pen.write(said("a", None, correction="Hi.", feedback_id="1"))
    pen.write(said("b", None, comment="exit 1", source=FeedbackSource.VERIFIER, feedback_id="2"))
    pen.write(said("c", 1.0, demonstration="Hi.", feedback_id="3"))
    ingest(any_journal, pen)
    assert asked(any_journal) == {"a|feedback"}


def rated_and_followed(pen: Pen, first: str, *said_of_it: Feedback) -> None:
    """A reply with a user's message after it, and feedback before that or after it."""
    turn = pen.say([user("hi")], "a", interaction_id="t", ended_at=1500.0)
    groups = [list(said_of_it), [interaction(follow(turn, user("hm")), interaction_id="next", ended_at=3000.0)]]
    for number, group in enumerate(groups if first == "feedback" else reversed(groups)):
        pen.write(*group, gateway=f"x{number}")


@pytest.mark.parametrize("first", ["feedback", "message"])
@pytest.mark.parametrize(
    ("changes", "jobs"),
    [
        ({"rating": 1.0}, set()),
        ({"rating": 1.0, "comment": "lovely and short"}, {"t|feedback"}),
        ({"rating": -1.0}, {"t|next_state"}),
        ({"rating": -1.0, "comment": "no bold"}, {"t|feedback"}),
        ({"rating": None, "comment": "no bold"}, {"t|feedback", "t|next_state"}),
        ({"rating": -1.0, "source": FeedbackSource.VERIFIER, "comment": "exit 1"}, {"t|next_state"}),
        ({"rating": 1.0, "source": FeedbackSource.VERIFIER}, set()),
        ({"rating": 1.0, "source": FeedbackSource.HARNESS}, {"t|next_state"}),
        ({"rating": 1.0, "tenant": "other"}, {"t|next_state"}),
    ],
)
def test_the_judge_is_spared_what_a_user_or_verifier_has_said(
    any_journal: Journal, pen: Pen, first: str, changes: dict[str, Any], jobs: set[str]
) -> None:
    changes = dict(changes)
    rated_and_followed(pen, first, said("t", changes.pop("rating"), **changes))
    ingest(any_journal, pen)
    assert asked(any_journal) == jobs
    assert ready(any_journal)["t"] == (not jobs)


def test_a_turn_whose_rating_was_deleted_is_judged_after_all(any_journal: Journal, pen: Pen) -> None:
    rated_and_followed(pen, "feedback", said("t", 1.0))
    ingest(any_journal, pen)
    assert (asked(any_journal), ready(any_journal)["t"]) == (set(), True)
    pen.write(taken_back(), gateway="b")
    ingest(any_journal, pen)
    assert (asked(any_journal), ready(any_journal)["t"]) == ({"t|next_state"}, False)


def test_a_deleted_rating_queues_a_job_again_that_was_needless_but_not_one_that_was_judged(
    any_journal: Journal, pen: Pen
) -> None:
    rated_and_followed(pen, "message", said("t", -1.0))
    ingest(any_journal, pen)
    for is_judged, state in ((False, "queued"), (True, "done")):
        with any_journal.write() as session:
            session.get_one(JudgeJob, "t|next_state").state = "done"
            session.query(FeedbackRow).update({"is_deleted": False})
            if is_judged:
                record_judgement(session, judgement("t", -1), NEXT_STATE)
        pen.write(taken_back(created_at=2600.0 + is_judged), gateway=f"b{is_judged}")
        ingest(any_journal, pen)
        with any_journal.read() as session:
            assert session.get_one(JudgeJob, "t|next_state").state == state


def test_a_held_job_is_taken_back_when_the_user_speaks(any_journal: Journal, pen: Pen) -> None:
    rated_and_followed(pen, "message")
    ingest(any_journal, pen)
    with any_journal.write() as session:
        session.get_one(JudgeJob, "t|next_state").state = "held"
    pen.write(said("t", 1.0), gateway="late")
    ingest(any_journal, pen)
    assert (asked(any_journal), ready(any_journal)["t"]) == (set(), True)


def test_changed_words_are_read_again(any_journal: Journal, pen: Pen) -> None:
    pen.say([user("hi")], "a", interaction_id="t")
    pen.write(said("t", -1.0, comment="no bold"))
    ingest(any_journal, pen)
    with any_journal.write() as session:
        session.get_one(JudgeJob, "t|feedback").state = "done"
    pen.write(said("t", -1.0, comment="no lists", created_at=2001.0), gateway="b")
    ingest(any_journal, pen)
    with any_journal.read() as session:
        assert session.get_one(JudgeJob, "t|feedback").state == "queued"


def columns_of(opinion: Feedback) -> dict[str, Any]:
    return {name: getattr(opinion, name) for name in opinion.__dataclass_fields__}
