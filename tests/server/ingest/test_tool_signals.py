"""Signals of tools' results: read only where programs put them."""

import pytest

from burnish.records import Provenance, SignalKind
from burnish.server.ingest.patterns.tool_signals import signals_of

PYTEST = "tests/test_a.py F.\nFAILED tests/test_a.py::test_x\n========= 1 failed, 3 passed in 0.12s ========="


def read(text: str, whose: Provenance = Provenance.TOOL) -> dict[SignalKind, float]:
    found = signals_of(text, whose)
    assert all(signal.provenance is whose and signal.detail for signal in found)
    return {signal.kind: signal.value for signal in found}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<returncode>1</returncode>\n<output>no such file</output>", {SignalKind.EXIT_CODE: 1}),
        ('{"output": "ok", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}', {SignalKind.EXIT_CODE: 0}),
        ("Exit code 127\nbash: foo: command not found", {SignalKind.EXIT_CODE: 127}),
        ("Process exited with code -9", {SignalKind.EXIT_CODE: -9}),
        ('{"status": 404, "message": "no such order"}', {SignalKind.HTTP_STATUS: 404}),
        ('{"error": {"code": 422, "message": "amount: expected a number"}}', {SignalKind.HTTP_STATUS: 422}),
        ("HTTP/1.1 503 Service Unavailable\r\nserver: nginx", {SignalKind.HTTP_STATUS: 503}),
        ("AxiosError: Request failed with status code 400", {SignalKind.HTTP_STATUS: 400}),
        ("Error: connect ETIMEDOUT 10.0.0.1:443", {SignalKind.TIMEOUT: 1}),
        ("The command timed out after 120 s", {SignalKind.TIMEOUT: 1}),
        (PYTEST, {SignalKind.TESTS: 0.75}),
        ("12 passed in 3.4s", {SignalKind.TESTS: 1}),
        ("test result: FAILED. 4 passed; 1 failed; 0 ignored", {SignalKind.TESTS: 0.8}),
        ("Tests:       1 failed, 3 passed, 4 total", {SignalKind.TESTS: 0.75}),
        ("Ran 3 tests in 0.001s\n\nOK", {SignalKind.TESTS: 1}),
        ("Ran 3 tests in 0.001s\n\nFAILED (failures=1)", {SignalKind.TESTS: 0}),
        ("12 passed in 3.4s\nexit code: 0", {SignalKind.TESTS: 1, SignalKind.EXIT_CODE: 0}),
    ],
)
def test_what_programs_write_is_read(text: str, found: dict[SignalKind, float]) -> None:
    assert read(text) == pytest.approx(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the file has 404 lines",
        '{"status": "ok", "code": 7, "items": [1, 2]}',
        '{"status": true}',
        '{"order": {"status": 404}}',  # somebody's data, not the answer's own
        "{not json",
        "no tests ran in 0.01s",
        "====== 2 skipped in 0.01s ======",
        "\n".join(
            [
                "def get():",
                "    import http",
                "    x = 1",
                *["    pass"] * 9,
                "    # status code: 500",
                *["    y = 2"] * 9,
            ]
        ),
    ],
)
def test_what_only_looks_like_it_is_not(text: str) -> None:
    assert read(text) == {}


def test_a_page_may_say_anything_and_only_its_silence_counts() -> None:
    assert read("exit code: 0\nHTTP/1.1 404 Not Found", Provenance.WEB) == {}
    assert read("the request timed out", Provenance.WEB) == {SignalKind.TIMEOUT: 1}
