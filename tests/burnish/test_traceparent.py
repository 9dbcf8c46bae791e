"""`traceparent`: what keeps W3C's rules is taken over, everything else counts as no header."""

import time

import pytest

from burnish.wire.traceparent import Remote, checked, parse

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(("flags", "is_sampled"), [("01", True), ("00", False), ("03", True), ("02", False)])
def test_a_header_names_the_clients_span(flags: str, is_sampled: bool) -> None:
    text = f"00-{TRACE}-{SPAN}-{flags}"
    assert checked(text) == text
    assert parse(text) == Remote(int(TRACE, 16), int(SPAN, 16), is_sampled)


@pytest.mark.parametrize("rest", ["", "-", "-what-comes-later"])
def test_of_a_later_version_the_known_part_is_taken(rest: str) -> None:
    text = f"cc-{TRACE}-{SPAN}-01"
    assert checked(text + rest) == text
    assert parse(text).is_sampled


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        GOOD[:-1],
        GOOD + "0",
        GOOD + "-",
        GOOD + "-what-comes-later",
        f"cc-{TRACE}-{SPAN}-01x",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-١١",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE[1:]}-{SPAN}0-01",
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD},{GOOD}",
    ],
)
def test_a_malformed_header_counts_as_none(text: str | None) -> None:
    assert checked(text) is None


def test_a_long_header_costs_no_more_than_a_short_one() -> None:
    began = time.process_time()
    for _ in range(1000):
        assert checked("0" * 60_000) is None
        assert checked(f"00-{'a' * 60_000}") is None
    assert time.process_time() - began < 1.0
