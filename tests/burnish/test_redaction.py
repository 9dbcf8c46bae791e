"""Redaction: what is found, what is left alone, and what becomes of the tokens."""

from array import array
from dataclasses import replace

import pytest

from burnish.records import Feedback, Interaction
from burnish.wire.findings import WINDOW
from burnish.wire.redaction import redact, redacted
from tests.cost import LENGTHS, near_findings, superlinear
from tests.factories import feedback, interaction, user

KEY = "sk-ant-api03-abcdefghijklmnop"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("write to ann.lee+x@mail.example.co.uk, please", "write to [email], please"),
        ("<ann@example.org>", "<[email]>"),
        ("call +49 30 1234567 or +1 (555) 123-4567.", "call [phone] or [phone]."),
        ("call 0049301234567", "call [phone]"),
        ("card 4111 1111 1111 1111, 4111111111111111", "card [card], [card]"),
        ("DE89 3704 0044 0532 0130 00 and GB82WEST12345698765432", "[iban] and [iban]"),
        ("ssn 123-45-6789", "ssn [ssn]"),
        ("from 93.184.216.34.", "from [ip]."),
        (f"key {KEY}", "key [secret]"),
        ("ghp_" + "a" * 36, "[secret]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest", "[secret]\nrest"),
        ('{"to": "ann@example.org"}', '{"to": "[email]"}'),
    ],
)
def test_what_is_found(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert redact(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3 of 2026-11-25, 18:30, 127.0.0.1:8700 and 192.168.0.1",
        "4111 1111 1111 1112 is no card, DE00 3704 0044 0532 0130 00 no IBAN",
        "a @decorator and x@y, user@host",
        "0x1f, 3.14159265358979, 1234567890123",
        "skip sk-short, sketch-of-a-plan",
        "data:image/png;base64,AAAA+491234567890",
        "uuid 123e4567-e89b-12d3-a456-426614174000",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_a_redacted_turn_keeps_no_tokens_and_says_why() -> None:
    call = {"id": "c", "function": {"name": "mail", "arguments": '{"to": "ann@example.org"}'}}
    turn = interaction([user("hi"), {"role": "assistant", "content": None, "tool_calls": [call]}])
    clean = redacted(turn)
    assert isinstance(clean, Interaction)
    assert clean.messages[1]["tool_calls"][0]["function"]["arguments"] == '{"to": "[email]"}'
    assert (clean.prompt_ids, clean.token_ids, clean.logprobs) == (array("i"), array("i"), array("f"))
    assert clean.quarantine == "redacted"
    assert isinstance(again := redacted(replace(turn, quarantine="no ids")), Interaction)
    assert again.quarantine == "no ids"
    same = interaction([user("nothing to see")])
    assert redacted(same) is same


def test_a_right_reply_with_a_finding_is_left_out() -> None:
    said = feedback("t", 1.0, comment="mail ann@example.org", demonstration="Her number is +49 30 1234567.")
    clean = redacted(said)
    assert isinstance(clean, Feedback) and (clean.comment, clean.demonstration) == ("mail [email]", None)
    assert redacted(plain := feedback("t", 1.0, comment="good")) is plain


@pytest.mark.parametrize("place", [0, WINDOW - 7, WINDOW - 1, 3 * WINDOW - 20])
def test_what_stands_across_two_windows_is_found(place: int) -> None:
    for found, word in (("ann@example.org", "email"), ("4111 1111 1111 1111", "card"), (KEY, "secret")):
        assert redact(f"{' ' * place}{found} x") == f"{' ' * place}[{word}] x"


def test_texts_beside_each_other_do_not_meet() -> None:
    turn = interaction([user("4111 1111"), user("1111 1111"), user("ann"), user("@example.org")])
    assert redacted(turn) is turn
    clean = redacted(interaction([user("fine"), user("mail ann@example.org"), user("fine")]))
    assert isinstance(clean, Interaction)
    assert [message["content"] for message in clean.messages] == ["fine", "mail [email]", "fine"]


def test_more_than_can_be_looked_through_is_left_out_from_there_on() -> None:
    """What is before that is as it was, and so is what cannot hold a finding."""
    many = "mail ann@example.org, card 4111 1111 1111 1112; " * 20_000
    last = "no number in here. " * 500
    turn = interaction([user("call +49 30 1234567"), user(many), user(last)])
    clean = redacted(turn)
    assert isinstance(clean, Interaction)
    first, second, third = (str(message["content"]) for message in clean.messages)
    assert first == "call [phone]" and third.startswith("[unchecked]") and third.endswith(last[WINDOW:])
    assert "ann@" not in second and second.startswith("mail [email], card 4111") and second.endswith("[unchecked]")
    longer = redacted(replace(turn, messages=[*turn.messages, user("and then?")]))
    assert isinstance(longer, Interaction) and longer.messages[:3] == clean.messages


def test_a_tree_that_is_too_deep_is_not_kept() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    clean = redacted(interaction([{"role": "user", "content": "mail ann@example.org", "extra": deep}]))
    assert isinstance(clean, Interaction) and clean.quarantine == "redacted"
    assert clean.messages == [{"role": "user", "content": "[unchecked]"}]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_time_for_a_text_grows_with_its_length(length: int) -> None:
    assert superlinear(redact, length, near_findings()) == []
