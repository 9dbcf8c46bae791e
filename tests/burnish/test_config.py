"""Settings: sources in order, unknown keys, children, and the promise that every key is described."""

from pathlib import Path

import pytest

from burnish import config
from burnish.cli.settings import markdown
from burnish.config import overrides
from burnish.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_flags_beat_environment_beats_file_beats_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "burnish.toml"
    file.write_text("[learner]\nmin_rows = 5\nmax_rows = 6\nrank = 7\n[judge]\nvotes = 5\n")
    monkeypatch.setenv("BURNISH_LEARNER__MAX_ROWS", "60")
    settings = config.load(flags={"learner.rank": 8})
    assert (settings.learner.min_rows, settings.learner.max_rows, settings.learner.rank) == (5, 60, 8)
    assert settings.judge.votes == 5
    assert settings.learner.learning_rate == 1e-3  # the sandbox's own


def test_another_model_does_not_get_the_sandbox_settings() -> None:
    settings = config.load(flags={"engine.model": "/models/other"})
    assert not settings.uses_sandbox
    assert settings.learner.learning_rate == 1e-5
    assert settings.retention_file is None


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'learner.min_row'; did you mean 'learner.min_rows'"):
        config.load(flags={"learner.min_row": 3})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"learner.min_rows": "many"}, "learner.min_rows"),
        ({"gateway.port": 70000}, "gateway.port"),
        ({"engine.max_lora_rank": 12}, "vLLM accepts one of"),
        ({"agent.name": "a b"}, "agent.name"),
    ],
)
def test_a_bad_value_is_named(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.load(flags=flags)


@pytest.mark.parametrize(
    ("flags", "has_groups"),
    [
        ({}, False),
        ({"shadow.recall": 4}, False),
        ({"learner.rl_weight": 0.0}, True),
        ({"learner.rl_weight": 0.0, "learner.distill_weight": 0.0}, False),
        ({"learner.rl_weight": 0.0, "learner.enabled": False}, False),
        ({"learner.rl_weight": 0.0, "shadow.enabled": False}, False),
        ({"shadow.enabled": True}, True),
    ],
)
def test_shadow_groups_are_on_where_they_pay_or_where_told(flags: dict[str, object], has_groups: bool) -> None:
    assert config.load(flags=flags).has_groups is has_groups


def test_broken_toml_and_missing_file_are_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("learner = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        config.load(broken)
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        config.load(tmp_path / "absent.toml")


def test_a_child_process_loads_exactly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"learner.rank": 8, "gateway.allowed_hosts": ("a.example", "b"), "state_dir": "/tmp/x"}
    settings = config.load(flags=flags | {"gateway.model_map": {"claude-*": "agent", "GPT-*": "agent@v2", "*": "base"}})
    for name, value in config.to_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert config.load() == settings
    assert list(config.load().gateway.model_map) == ["claude-*", "GPT-*", "*"]  # the first pattern that fits is meant


def test_every_setting_has_a_sentence() -> None:
    described = config.described()
    assert len(described) > 50
    assert [key for key, text in described.items() if not text.endswith((".", "…"))] == []


def test_the_state_directory_stays_the_same_wherever_a_part_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings in (config.load(), config.load(flags={"state_dir": ".burnish"})):
        assert settings.state_dir == tmp_path / ".burnish"
    monkeypatch.setenv("BURNISH_STATE_DIR", "elsewhere")
    assert config.load().state_dir == tmp_path / "elsewhere"


def test_the_settings_page_is_what_the_command_prints() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    assert page.read_text(encoding="utf-8") == markdown()


def test_a_flag_and_an_agents_own_setting_outrank_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that `burnish up` starts have every setting in their environment."""
    monkeypatch.setenv("BURNISH_LEARNER__MIN_ROWS", "16")
    settings = config.load(flags={"learner.rank": 8})
    assert (settings.learner.min_rows, settings.learner.rank) == (16, 8)
    assert config.load(flags={"learner.min_rows": 8}).learner.min_rows == 8
    own = config.for_agent(settings, {"learner.min_rows": 4})
    assert (own.learner.min_rows, own.learner.rank, own.state_dir) == (4, 8, settings.state_dir)
    assert overrides.checked(settings, {"learner.min_rows": "4"}) == {"learner.min_rows": 4}
