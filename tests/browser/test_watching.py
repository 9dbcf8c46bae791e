"""The pages over real parts: a new user's five tasks, and a stream of replies that somebody only watches."""

from pathlib import Path

import pytest

from benchmarks.seen import live, tasks

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


def test_a_new_user_does_five_tasks_with_few_clicks(tmp_path: Path) -> None:
    figures = tasks.measure(tmp_path, print, n_turns=3000)
    assert figures["tasks_done"] == 5 and figures["tasks_clicks"] <= tasks.MOST_CLICKS, figures


def test_the_overview_shows_every_reply_rating_and_version_of_a_stream(tmp_path: Path) -> None:
    figures = live.measure(tmp_path, print, n=48)
    assert figures["events"] == 48 + 24 + 3 and figures["events_missed"] == 0, figures
