"""The learner works less while tokens are slower than without it, and recovers when they are not."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.learner.run.throttle import LONGEST_PAUSE, MIN_SHARE, Throttle, TokenGaps, WorkShare, token_gaps


class Counters:
    """An engine's counters: gaps of a given length in each sample."""

    def __init__(self) -> None:
        self.seconds = self.count = 0.0

    def after(self, gap: float, n: int = 100) -> TokenGaps:
        self.seconds += gap * n
        self.count += n
        return TokenGaps(self.seconds, self.count)


def looked(limit: float, *looks: tuple[float, int, bool]) -> WorkShare:
    pace, counters = WorkShare(limit), Counters()
    for gap, n, is_working in looks:
        pace.look(counters.after(gap, n), is_working=is_working)
    return pace


QUIET = [(0.01, 100, False)] * 3


def test_a_step_that_slows_serving_down_gets_less_of_the_time() -> None:
    assert looked(1.5, *QUIET, *[(0.02, 100, True)] * 3).share == 0.7**2  # a sample across the edge is ignored
    assert looked(1.5, *QUIET, *[(0.014, 100, True)] * 9).share == 1.0
    assert looked(0.0, *QUIET, *[(0.5, 100, True)] * 9).share == 1.0  # switched off
    assert looked(1.5, *[(0.5, 100, True)] * 9).share == 1.0  # nothing to compare with


def test_it_recovers_when_serving_is_fast_or_idle() -> None:
    slow = [*QUIET, *[(0.05, 100, True)] * 30]
    assert looked(1.5, *slow).share == MIN_SHARE
    assert looked(1.5, *slow, *[(0.01, 100, True)] * 30).share == 1.0
    assert looked(1.5, *slow, *[(0.05, 3, True)] * 30).share == 1.0


def test_a_restarted_engine_is_not_compared_with_its_past() -> None:
    pace = looked(1.5, *QUIET, (0.01, 100, True))
    pace.look(TokenGaps(5.0, 60), is_working=True)
    assert pace.share == 1.0


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 1000), st.booleans()), max_size=60), st.floats(0, 100))
def test_the_share_and_the_pause_stay_within_their_bounds(looks: list[tuple[float, int, bool]], worked: float) -> None:
    pace = looked(1.5, *looks)
    assert MIN_SHARE <= pace.share <= 1.0
    assert 0.0 <= pace.pause(worked) <= LONGEST_PAUSE


METRICS = """# HELP vllm:inter_token_latency_seconds Histogram of inter-token latency in seconds.
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="base"} 3.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="base"} 4.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="base"} 0.5
"""


@contextmanager
def engine(text: str, *, has_choice: bool = True, asked: list[str] | None = None) -> Iterator[str]:
    """Its metrics are `text`. Without `has_choice` it has only the whole page. `asked` collects the paths."""

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = (has_choice or self.path == "/metrics") and self.headers["authorization"] == "Bearer k"
            if asked is not None:
                asked.append(self.path)
            self.send_response(200 if is_known else 404)
            self.end_headers()
            self.wfile.write(text.encode() if is_known else b"")

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_counters_of_all_engines_are_added_up() -> None:
    with engine(METRICS) as one, engine(METRICS) as other, engine("") as silent:
        assert token_gaps([one, other], "k") == TokenGaps(1.0, 8.0)
        assert token_gaps([one, silent], "k") is None
        assert token_gaps([one], "another") is None
    assert token_gaps([one], "k", timeout=0.2) is None  # it is gone


def test_two_counters_are_requested_and_the_whole_page_only_as_a_fallback() -> None:
    asked: list[str] = []
    with engine(METRICS, asked=asked) as one:
        assert token_gaps([one], "k") == TokenGaps(0.5, 4.0)
    assert len(asked) == 1 and asked[0].startswith("/metrics/?name%5B%5D=vllm%3Ainter_token_latency_seconds_sum&")
    asked.clear()
    with engine(METRICS, has_choice=False, asked=asked) as old:
        assert token_gaps([old], "k") == TokenGaps(0.5, 4.0)
    assert len(asked) == 2 and asked[1] == "/metrics"


def test_the_thread_samples_and_ends() -> None:
    seen = threading.Event()

    def read() -> TokenGaps | None:
        seen.set()
        return None

    with Throttle(WorkShare(1.5), read, interval=0.01) as throttle:
        assert seen.wait(10)
        with throttle.step():
            throttle.rest(0.0)


@pytest.mark.parametrize(("nice", "policy"), [(0, "SCHED_OTHER"), (7, "SCHED_OTHER"), (20, "SCHED_IDLE")])
def test_the_process_gets_the_requested_niceness(nice: int, policy: str) -> None:
    script = (
        "import os; from burnish.learner.run.throttle import lower_priority; "
        f"lower_priority({nice}); print(os.sched_getscheduler(0), os.nice(0))"
    )
    before = os.nice(0)
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert int(output[0]) == getattr(os, policy)
    assert int(output[1]) == (before if nice == 20 else min(19, before + nice))
