"""The slices of recorded turns, on both databases."""

from burnish.adapters.evidence.turn_slices import slices_of, with_heads
from burnish.journal import Journal
from burnish.journal.blobs import text_of
from tests.factories import interaction, user
from tests.turns import add_turn

CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls"}}],
}


def test_slices_say_what_was_known_before_the_reply(any_journal: Journal) -> None:
    system = {"role": "system", "content": "You answer the customers of a shop, always briefly and kindly."}
    said = [system, user("Wo ist meine Bestellung und was mache ich mit der alten?")]
    add_turn(any_journal, interaction(said, interaction_id="asked", key_id="k1"), route="responses")
    done = [*said, CALL, {"role": "tool", "tool_call_id": "c1", "content": "a b c"}]
    add_turn(any_journal, interaction(done, interaction_id="after a tool"))
    with any_journal.read() as session:
        found = slices_of(session, ["asked", "after a tool", "erased"])
        prompt = found["asked"][4]
        told = with_heads(session, [{"slice": name} for name in (prompt, "system prompt: 0123456789ab", "route: chat")])
    assert found["asked"][:4] == ("route: responses", "key: k1", "tool: none", "language: de")
    assert found["after a tool"][2:] == ("tool: ls", "language: de", prompt)
    assert set(found) == {"asked", "after a tool"}
    # a name stays in the evidence of versions after an erasure, so it holds no words
    assert prompt == f"system prompt: {text_of(system)[0][:12]}"
    assert [each["head"] for each in told] == [
        "You answer the customers of a shop, always briefly and kindl…",
        None,
        None,
    ]
