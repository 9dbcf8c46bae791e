"""Main turns, side calls, sub-agents and repeated requests: declared, inferred, or corrected later."""

from pathlib import Path
from typing import Any

import pytest

from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.records import Interaction
from tests.factories import assistant, user
from tests.server.ingest.pen import Pen, follow, ingest, links, next_state

TOOLS = ({"type": "function", "function": {"name": "look"}},)
AGENT = {"role": "system", "content": "You are a coding agent."}
TITLES = {"role": "system", "content": "You write titles."}
OPENING = "Please rename the module in my repository."


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}} for name in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def kinds(journal: Journal, *turns: Interaction) -> list[tuple[str, str | None]]:
    with journal.read() as session:
        rows = [session.get_one(InteractionRow, turn.interaction_id) for turn in turns]
        return [(row.kind, row.skip_reason) for row in rows]


MAIN, SIDE, SUB = ("main", None), ("side", "side turn"), ("subagent", None)


def test_a_title_that_quotes_another_conversation_is_beside_it(any_journal: Journal, pen: Pen) -> None:
    main = pen.say([AGENT, user(OPENING)], "done", tools=TOOLS)
    title = pen.say([TITLES, user(f"A title for this: {OPENING}")], "Renaming a module")
    ingest(any_journal, pen)
    assert kinds(any_journal, main, title) == [MAIN, SIDE]


def test_a_title_asked_for_first_is_found_out(any_journal: Journal, pen: Pen) -> None:
    title = pen.say([TITLES, user(f"A title for this: {OPENING}")], "Renaming a module")
    ingest(any_journal, pen)
    assert kinds(any_journal, title) == [MAIN]
    main = pen.say([AGENT, user(OPENING)], "done", tools=TOOLS)
    ingest(any_journal, pen)
    assert kinds(any_journal, main, title) == [MAIN, SIDE]


def test_a_title_first_in_a_named_session_does_not_make_the_agent_a_subagent(any_journal: Journal, pen: Pen) -> None:
    title = pen.say([TITLES, user("Name it.")], "A name", quoted_session="s", quoted_by="x-session-affinity")
    main = pen.say([AGENT, user("Go.")], "gone", tools=TOOLS, quoted_session="s", quoted_by="x-session-affinity")
    helper = pen.say(
        [TITLES, user("Find it.")], "found", tools=TOOLS, quoted_session="s", quoted_by="x-session-affinity"
    )
    ingest(any_journal, pen)
    assert kinds(any_journal, title, main, helper) == [SIDE, MAIN, SUB]
    assert links(any_journal)[main.interaction_id].rule == "harness"


def test_a_summary_is_no_answer_of_the_user(any_journal: Journal, pen: Pen) -> None:
    first = pen.say(
        [AGENT, user(OPENING)], calling("chatcmpl-tool-0123456789abcdef"), tools=TOOLS, finish_reason="tool_calls"
    )
    result = {"role": "tool", "tool_call_id": "chatcmpl-tool-0123456789abcdef", "content": "ok"}
    summary = pen.say(follow(first, result, user("Summarise all this.")), "We renamed it.")
    after = pen.say(follow(first, result), "renamed", tools=TOOLS)
    ingest(any_journal, pen)
    assert kinds(any_journal, first, summary, after) == [MAIN, SIDE, MAIN]
    assert next_state(any_journal, first) == ("tool_result", [result], after.interaction_id)


def test_a_summary_in_a_known_harness_words_may_carry_all_its_tools(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([AGENT, user(OPENING)], "done", tools=TOOLS)
    words = user("CRITICAL: text only. Your task is to create a detailed summary of the conversation so far.")
    summary = pen.say(follow(first, words), "It was long.", tools=TOOLS)
    ingest(any_journal, pen)
    assert kinds(any_journal, summary) == [SIDE]
    assert next_state(any_journal, first) is None


def test_a_side_call_that_is_continued_was_none(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([AGENT, user(OPENING)], "done", tools=TOOLS)
    asked = pen.say(follow(first, user("And without tools?")), "also done")
    ingest(any_journal, pen)
    assert kinds(any_journal, asked) == [SIDE]
    pen.say(follow(asked, user("Fine.")), "thanks", tools=TOOLS)
    ingest(any_journal, pen)
    assert kinds(any_journal, asked) == [MAIN]
    found = next_state(any_journal, first)
    assert found is not None and found[1] == [user("And without tools?")]


def test_a_conversation_that_quotes_another_is_a_conversation(any_journal: Journal, pen: Pen) -> None:
    pen.say([user(OPENING)], "done")
    other = pen.say([user("Hello!"), assistant("Hi."), user(f"My colleague said: {OPENING}")], "I see")
    ingest(any_journal, pen)
    assert kinds(any_journal, other) == [MAIN]


def test_a_try_that_was_cut_off_is_no_turn(any_journal: Journal, pen: Pen) -> None:
    cut = pen.say([AGENT, user("Sing.")], "la", is_aborted=True)
    again = pen.say([AGENT, user("Sing.")], "la la la", retry=1)
    after = pen.say(follow(again, user("Louder.")), "LA")
    ingest(any_journal, pen)
    found = links(any_journal)
    assert [found[turn.interaction_id].skip_reason for turn in (cut, again, after)] == [
        "retried by its client",
        None,
        None,
    ]
    assert (
        found[cut.interaction_id].session == found[again.interaction_id].session == found[after.interaction_id].session
    )
    assert found[after.interaction_id].parent == again.interaction_id


@pytest.mark.parametrize("late", [False, True])
def test_a_try_that_ended_in_vain_is_set_aside_whenever_it_ends(any_journal: Journal, pen: Pen, late: bool) -> None:
    first = pen.say([user("hi")], "hello there, how can I help you?")
    tries = [
        lambda: pen.say(follow(first, user("on")), "the same words", interaction_id="given-up"),
        lambda: pen.say(follow(first, user("on")), "the same words", retry=1, interaction_id="kept"),
    ]
    for say in reversed(tries) if late else tries:
        say()
    ingest(any_journal, pen)
    found = links(any_journal)
    assert (found["given-up"].skip_reason, found["kept"].skip_reason) == ("retried by its client", None)


def test_strangers_who_open_alike_are_not_tries_of_each_other(any_journal: Journal, pen: Pen) -> None:
    """One was served. The other's first try was refused, so its repetition is the only record."""
    served = pen.say([user("hi")], "hello")
    repeated = pen.say([user("hi")], "good day", retry=1)
    after = pen.say(follow(served, user("on")), "yes")
    ingest(any_journal, pen)
    found = links(any_journal)
    assert found[served.interaction_id].skip_reason is found[repeated.interaction_id].skip_reason is None
    assert found[served.interaction_id].session != found[repeated.interaction_id].session
    assert found[after.interaction_id].parent == served.interaction_id


def test_cleared_tool_results_do_not_hide_the_last_reply(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([AGENT, user("look")], calling("chatcmpl-tool-00000000000000aa"), tools=TOOLS)
    result = {"role": "tool", "tool_call_id": "chatcmpl-tool-00000000000000aa", "content": "a very long listing"}
    second = pen.say(follow(first, result), "There are forty files, and all of them are empty.", tools=TOOLS)
    messages = follow(second, user("delete them"))
    messages[3] = result | {"content": "[cleared]"}
    third = pen.say(messages, "gone", tools=TOOLS)
    ingest(any_journal, pen)
    link = links(any_journal)[third.interaction_id]
    assert (link.parent, link.rule) == (second.interaction_id, "suffix")


@pytest.mark.parametrize(
    "repeated",
    [
        "Calling tools:\n[{'id': 'chatcmpl-tool-00000000000000bb'}, {'id': 'chatcmpl-tool-00000000000000aa'}]",
        [
            {
                "type": "text",
                "text": "Calling tools: [{'id': 'chatcmpl-tool-00000000000000aa'}, {'id': "
                "'chatcmpl-tool-00000000000000bb'}]",
            }
        ],
    ],
)
def test_tool_calls_written_as_text_are_known_by_their_ids(any_journal: Journal, pen: Pen, repeated: Any) -> None:
    ids = ("chatcmpl-tool-00000000000000aa", "chatcmpl-tool-00000000000000bb")
    first = pen.say([user("look")], calling(*ids), finish_reason="tool_calls")
    second = pen.say([user("look"), {"role": "assistant", "content": repeated}, user("Observation:\nit is dark")], "so")
    ingest(any_journal, pen)
    assert links(any_journal)[second.interaction_id].parent == first.interaction_id
    found = next_state(any_journal, first)
    assert found is not None and found[0] == "tool_result", "what a tool printed is not a user's word"


def test_a_stop_string_may_be_put_back(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("code")], "<code>\nprint(look('everywhere and nowhere'))\n", stop="</code>")
    second = pen.say(
        [user("code"), assistant("<code>\nprint(look('everywhere and nowhere'))\n</code>"), user("Observation:\n3")],
        "three",
    )
    ingest(any_journal, pen)
    assert links(any_journal)[second.interaction_id].parent == first.interaction_id


def test_an_opted_out_turn_keeps_those_that_repeat_it_out_as_well(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello")
    private = pen.say(follow(first, user("my secret is 7")), "noted", may_train=False)
    after = pen.say(follow(private, user("go on")), "yes")
    last = pen.say(follow(after, user("more")), "no")
    ingest(any_journal, pen)
    skip_reasons = [skip_reason for _, skip_reason in kinds(any_journal, first, private, after, last)]
    assert skip_reasons == [None, "opted out", "opted out with an earlier turn", "opted out with an earlier turn"]
    assert next_state(any_journal, first) is None, "the secret must not reach the judge either"


def test_a_remote_model_s_reply_is_a_turn_that_nobody_trains(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello", upstream="openai/larger")
    second = pen.say(follow(first, user("on")), "yes")
    ingest(any_journal, pen)
    found = links(any_journal)
    assert found[first.interaction_id].skip_reason == "answered by openai/larger"
    assert (found[second.interaction_id].parent, found[second.interaction_id].skip_reason) == (
        first.interaction_id,
        None,
    )


def test_words_survive_a_restart_of_the_ingester(any_journal: Journal, pen: Pen, tmp_path: Path) -> None:
    pen.say([AGENT, user(OPENING)], "done", tools=TOOLS)
    ingest(any_journal, pen)  # each call is an ingester of its own
    title = pen.say([TITLES, user(f"A title for this: {OPENING}")], "Renaming")
    ingest(any_journal, pen)
    assert kinds(any_journal, title) == [SIDE]
