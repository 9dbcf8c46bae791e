"""The operator's acceptance prompts: asked according to the settings."""

import json
from pathlib import Path

import pytest

from burnish import config
from burnish.adapters.evidence.acceptance import Rules
from burnish.errors import ConfigError
from burnish.server.rollout.process import _acceptance


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "acceptance.jsonl"
    lines = [{"messages": [{"role": "user", "content": f"say {n}"}], "check": str(n)} for n in range(3)]
    made.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return made


def settings(file: Path) -> config.Settings:
    return config.Settings(gate=config.Gate(acceptance_prompts=str(file)))


def test_every_prompt_is_asked_as_often_as_is_wanted(file: Path) -> None:
    once, thrice = _acceptance(settings(file)), _acceptance(settings(file), Rules(n_draws=3))
    assert once is not None and thrice is not None
    assert (once.n, thrice.n) == (3, 9)


def test_another_way_to_ask_has_another_best(file: Path) -> None:
    """Passes of 9 replies cannot be compared with passes of 3, or greedy ones with sampled ones."""
    ways = [Rules(), Rules(n_draws=3), Rules(temperature=0.0)]
    sets = [_acceptance(settings(file), way) for way in ways]
    assert len({each.digest for each in sets if each is not None}) == 3


def test_none_are_asked_where_no_file_is_named() -> None:
    assert _acceptance(config.Settings()) is None


def test_a_file_that_is_not_there_is_told_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gate\.acceptance_prompts"):
        _acceptance(settings(tmp_path / "gone.jsonl"))
