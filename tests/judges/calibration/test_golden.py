"""Golden sets: valid lines, the message for an invalid line, and the set that ships."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judging import golden as generator
from burnish.judges import prefilter
from burnish.judges.calibration import golden
from burnish.judges.calibration.golden import GoldenCase, GoldenError
from burnish.sandbox.world import language

WHOLE: dict[str, Any] = {
    "messages": [{"role": "user", "content": "copy 1"}],
    "reply": "**1**",
    "next_state": ["no bold please"],
    "from": "user",
    "score": -1,
}


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "golden.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_a_text_is_a_message_and_empty_lines_are_none(tmp_path: Path) -> None:
    (case,) = golden.load(written(tmp_path, "", WHOLE | {"note": "marks"}, " "))
    assert case.reply == {"role": "assistant", "content": "**1**"}
    assert case.next_state == ({"role": "user", "content": "no bold please"},)
    assert (case.origin, case.score, case.note, case.turn, case.has_hint) == ("user", -1, "marks", None, None)
    tool = golden.load(written(tmp_path, WHOLE | {"from": "tool", "next_state": "error 7"}))[0]
    assert tool.next_state == ({"role": "tool", "content": "error 7"},)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "expected one JSON object"),
        ("[]", "expected a JSON object"),
        ({**WHOLE, "score": 2}, "'score': expected 1, 0 or -1, got 2"),
        ({**WHOLE, "score": True}, "'score': expected 1, 0 or -1, got True"),
        ({**WHOLE, "score": "+1"}, "'score': expected 1, 0 or -1"),
        ({**WHOLE, "from": "web"}, "'from': expected one of user, tool, feedback, got 'web'"),
        ({**WHOLE, "reply": 7}, "'reply': expected a text or a message"),
        ({**WHOLE, "messages": []}, "'messages': expected a list of messages, at least one"),
        ({**WHOLE, "next_state": [{"content": "x"}]}, "'next_state': expected a text or a message with 'role'"),
        ({**WHOLE, "note": 1}, "'note': expected a text"),
        ({**WHOLE, "hint": "Use bold."}, "'hint': expected true or false, got 'Use bold.'"),
        ({**WHOLE, "scores": 1}, "unknown field 'scores'; known are"),
        ({key: WHOLE[key] for key in WHOLE if key != "score"}, "the field 'score' is missing"),
    ],
)
def test_a_line_that_is_no_case_is_named_with_what_was_expected(tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(GoldenError, match=r"golden\.jsonl, line 2: ") as error:
        golden.load(written(tmp_path, WHOLE, line))
    assert said in str(error.value)


def test_a_missing_or_empty_file_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", written(tmp_path, "")):
        with pytest.raises(GoldenError, match="burnish judges label"):
            golden.load(path)


def test_cases_are_appended_behind_a_line_without_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    case = GoldenCase(
        ({"role": "user", "content": "a"},),
        {"role": "assistant", "content": "b"},
        ({"role": "user", "content": "c"},),
        "user",
        1,
    )
    golden.append(path, golden.scored(case, 0))
    golden.append(path, case)
    assert [each.score for each in golden.load(path)] == [-1, 0, 1]
    golden.append(tmp_path / "new" / "set.jsonl", case)
    assert golden.load(tmp_path / "new" / "set.jsonl") == [case]


def test_the_question_is_the_same_as_in_production() -> None:
    bad = golden._case(json.dumps(WHOLE | {"reply": "Solution:"}))
    assert golden.question(bad).rule == prefilter.OPENER
    asked = golden.question(golden._case(json.dumps(WHOLE))).messages
    for text in ('{"user": "copy 1"}', '{"assistant": "**1**"}', '{"user": "no bold please"}'):
        assert text in asked[1]["content"]
    commented = golden._case(json.dumps(WHOLE | {"from": "feedback", "reply": ""}))
    assert golden.question(commented).rule is None


def test_the_shipped_set_is_what_the_script_makes() -> None:
    assert golden.SHIPPED.read_text(encoding="utf-8") == generator.text()


def test_the_shipped_set_is_balanced_and_no_case_can_have_been_trained_on() -> None:
    cases = golden.load(golden.SHIPPED)
    assert len(cases) == len({case.to_line() for case in cases}) >= 200
    assert Counter(case.score for case in cases) == {1: 80, 0: 80, -1: 80}
    assert Counter((case.origin, case.score) for case in cases) == generator.WANTED
    for case in cases:
        tasks = [language.parse_task(str(message["content"])) for message in case.messages if message["role"] == "user"]
        assert any(task is not None and language.is_held_out(task.arguments) for task in tasks)
        assert golden.question(case).rule is None


def test_each_language_has_its_set() -> None:
    assert (golden.shipped(True), golden.shipped(False)) == (golden.SHIPPED, golden.ENGLISH)
    assert len({golden.digest(golden.SHIPPED), golden.digest(golden.ENGLISH)}) == 2


def test_the_english_set_goes_both_ways_and_holds_hints_and_injections() -> None:
    cases = golden.load(golden.ENGLISH)
    assert len(cases) == len({case.to_line() for case in cases}) >= 220
    shares = {score: n / len(cases) for score, n in Counter(case.score for case in cases).items()}
    assert shares[1] > 0.3 and shares[0] > 0.2 and shares[-1] > 0.4
    by_origin = Counter(case.origin for case in cases)
    assert by_origin["user"] > 150 and by_origin["tool"] > 50 and by_origin["feedback"] > 20
    assert all(len({case.score for case in cases if case.origin == origin}) == 3 for origin in by_origin)
    assert sum(case.has_hint is True for case in cases) >= 40
    assert not [case for case in cases if case.has_hint and case.score != -1], "praise holds no hint"
    assert all(golden.question(case).rule is None for case in cases), "each case asks the judge"


def test_the_english_sets_injections_aim_both_ways_and_almost_all_are_found() -> None:
    attacks = [case for case in golden.load(golden.ENGLISH) if case.note.startswith("injection: ")]
    assert len(attacks) >= 30 and {case.score for case in attacks} == {1, 0, -1}
    asked = [golden.question(case) for case in attacks]
    assert sum(each.redacted is not None for each in asked) >= 0.9 * len(attacks)
    # what is nothing but an attack can have no verdict
    assert all(case.score == 0 for case, each in zip(attacks, asked, strict=True) if each.is_hollow)


def test_no_case_of_the_english_set_is_another_one_in_other_words() -> None:
    seen: dict[str, frozenset[str]] = {}
    for case in golden.load(golden.ENGLISH):
        text = " ".join(str(message.get("content")) for message in (*case.messages, case.reply, *case.next_state))
        words = frozenset(text.lower().split())
        for other, theirs in seen.items():
            assert len(words & theirs) < 0.8 * len(words | theirs), f"{text!r} is like {other!r}"
        seen[text] = words
