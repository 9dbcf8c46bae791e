"""Settings: the order of sources, unknown keys, child processes, and a description for every key."""

from pathlib import Path
from typing import Any

import pytest

from burnish import config
from burnish.cli.settings import markdown
from burnish.config import overrides
from burnish.config.cache_dir import cache_dir
from burnish.errors import ConfigError, RequestError


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
    assert settings.judge.concurrency == 8  # the sandbox's own


def test_another_model_does_not_get_the_sandbox_settings() -> None:
    settings = config.load(flags={"engine.model": "/models/other"})
    assert not settings.uses_sandbox
    assert (settings.preset, settings.recipe) == ("general", config.Recipe())
    assert settings.forgetting_file == config.ABILITIES


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'learner.min_row'; did you mean 'learner.min_rows'"):
        config.load(flags={"learner.min_row": 3})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"learner.min_rows": "many"}, "learner.min_rows"),
        ({"gateway.port": 70000}, "gateway.port"),
        ({"engine.max_lora_rank": 12}, "a rank that vLLM accepts: one of"),
        ({"agent.name": "a b"}, "agent.name"),
    ],
)
def test_a_bad_value_is_named(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.load(flags=flags)


def test_the_recipe_is_the_preset_then_the_settings_then_the_table(tmp_path: Path) -> None:
    assert config.load().preset == "sandbox"
    assert config.load().recipe == config.Recipe(**config.PRESETS["sandbox"])
    file = tmp_path / "burnish.toml"
    file.write_text("[learner]\nrank = 8\nmax_rows = 9\n[learner.recipe]\nkl_weight = 0.5\nmax_rows = 7\n")
    recipe = config.load().recipe
    assert (recipe.learning_rate, recipe.rank, recipe.lora_alpha) == (1e-3, 8, 16)
    assert (recipe.max_rows, recipe.kl_weight, recipe.anchor_weight) == (7, 0.5, 3.0)
    general = config.load(flags={"learner.preset": "general"}).recipe
    assert (general.learning_rate, general.kl_weight) == (5e-4, 0.5)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"learner.recipe.dual_clp": 2.0}, r"unknown field 'dual_clp' of the recipe; did you mean 'dual_clip'\?"),
        (
            {"learner.recipe": {"zzz": 1}},
            r"unknown field 'zzz' of the recipe; docs/reference/objectives\.md lists the fields",
        ),
        ({"learner.recipe.clip_low": -1}, r"'learner\.recipe': .*clip_low: .*\(got -1\)"),
        ({"learner.recipe": {"policy_loss": "gspo", "correction": "token_tis"}}, 'set correction = "bypass"'),
        ({"learner.kl_weight": 0.5}, r"the recipe has it: learner\.recipe\.kl_weight"),
    ],
)
def test_a_change_of_the_recipe_that_cannot_be_is_named(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.load(flags=flags)


def test_what_is_in_force_shows_the_presets_values() -> None:
    shown = config.effective(config.load(flags={"learner.rank": 4}))
    assert (shown["learner.preset"], shown["learner.learning_rate"], shown["learner.rank"]) == ("sandbox", 1e-3, 4)


def test_every_preset_is_a_recipe() -> None:
    for name, changes in config.PRESETS.items():
        assert config.load(flags={"learner.preset": name}).recipe == config.Recipe(**changes)


def test_no_field_of_the_recipe_is_a_file_or_a_device() -> None:
    """An agent's own settings may change the recipe, but must not contain a path."""
    given = config.Recipe().model_dump()
    texts = {name for name, field in config.Recipe.model_fields.items() if field.annotation in (str, Path)}
    assert texts == set() and not {"anchors", "device", "threads"} & given.keys()


@pytest.mark.parametrize(
    ("flags", "has_groups"),
    [
        ({}, False),
        ({"groups.earlier_hints": 4}, False),
        ({"learner.recipe.rl_weight": 0.0}, True),
        ({"learner.recipe.rl_weight": 0.0, "learner.recipe.distill_weight": 0.0}, False),
        ({"learner.recipe.rl_weight": 0.0, "learner.enabled": False}, False),
        ({"learner.recipe.rl_weight": 0.0, "groups.enabled": False}, False),
        ({"groups.enabled": True}, True),
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
    flags = {
        "learner.rank": 8,
        "learner.recipe.monitor_kl": [1, 2],
        "gateway.allowed_hosts": ("a.example", "b"),
        "state_dir": "/tmp/x",
    }
    settings = config.load(flags=flags | {"gateway.model_map": {"claude-*": "agent", "GPT-*": "agent@v2", "*": "base"}})
    for name, value in config.to_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert config.load() == settings
    assert list(config.load().gateway.model_map) == ["claude-*", "GPT-*", "*"]  # the first matching pattern counts


def test_every_setting_has_a_sentence() -> None:
    described = config.described()
    assert len(described) <= 87
    assert sorted(key for keys in config.grouped().values() for key in keys) == sorted(described)
    assert len(config.FIRST) == 12
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
    """The parts that `burnish up` starts get every setting in their environment."""
    monkeypatch.setenv("BURNISH_LEARNER__MIN_ROWS", "16")
    settings = config.load(flags={"learner.rank": 8})
    assert (settings.learner.min_rows, settings.learner.rank) == (16, 8)
    assert config.load(flags={"learner.min_rows": 8}).learner.min_rows == 8
    own = config.for_agent(settings, {"learner.min_rows": 4})
    assert (own.learner.min_rows, own.learner.rank, own.state_dir) == (4, 8, settings.state_dir)
    assert overrides.checked(settings, {"learner.min_rows": "4"}) == {"learner.min_rows": 4}


def test_an_agent_may_have_a_recipe_of_its_own() -> None:
    settings = config.load(flags={"learner.recipe.kl_weight": 0.5})
    own = overrides.checked(settings, {"learner.recipe.dual_clip": "2", "learner.recipe.monitor_kl": [1, 2]})
    assert own == {"learner.recipe.dual_clip": 2.0, "learner.recipe.monitor_kl": [1.0, 2.0]}
    recipe = config.for_agent(settings, own).recipe
    assert (recipe.dual_clip, recipe.monitor_kl, recipe.kl_weight) == (2.0, (1.0, 2.0), 0.5)
    with pytest.raises(RequestError, match="did you mean 'dual_clip'"):
        overrides.checked(settings, {"learner.recipe.dual_clp": 2})


@pytest.mark.parametrize("key", ["learner.anchors", "gate.forgetting_prompts", "gate.acceptance_prompts"])
@pytest.mark.parametrize("path", ["/dev/zero", "/nonexistent", "../secret", ""])
def test_no_agent_names_a_file_of_the_server(key: str, path: str) -> None:
    with pytest.raises(RequestError, match="names a file of the server"):
        overrides.checked(config.load(), {key: path})


def test_every_setting_that_is_a_path_is_known_to_the_overrides() -> None:
    """A new one must be added to `FILES`. Every other text setting of an agent is one of a few words."""
    for section in overrides.SECTIONS:
        for name, field in config.Settings.model_fields[section].annotation.model_fields.items():
            if field.annotation in (str, Path):
                assert f"{section}.{name}" in overrides.FILES


@pytest.mark.parametrize(
    "own",
    [
        {"learner.recipe.num_iterations": 1_000_000},
        {"learner.max_rows": 10**9},
        {"learner.rank": 10**6},
        {"learner.recipe.alpha": 10**9},
        {"learner.recipe.anchor_rows": 10**9},
        {"learner.recipe.micro_tokens": 10**9},
        {"learner.recipe.replay_rows": 10**9},
        {"learner.max_wait": "inf"},
        {"learner.recipe.kl_weight": "inf"},
        {"learner.recipe.step_kl": "nan"},
        {"canary.max_hours": "inf"},
        {"versions.keep_live": 10**12},
        {"learner.recipe.policy_loss": "gspo", "learner.recipe.correction": "token_tis"},
    ],
)
def test_an_agents_numbers_are_bounded(own: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        overrides.checked(config.load(), own)


@pytest.mark.parametrize(
    "own", [{"learner.recipe.num_iterations": 9}, {"learner.max_rows": 129}, {"learner.recipe.group_size": 17}]
)
def test_an_agents_step_costs_at_most_four_of_the_servers(own: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        overrides.checked(config.load(), own)
    smaller = {key: value - 1 for key, value in own.items()}
    assert overrides.checked(config.load(), smaller) == smaller


def test_a_servers_larger_settings_are_its_agents_too() -> None:
    settings = config.load(flags={"learner.max_rows": 512})
    assert overrides.checked(settings, {"learner.max_rows": 2048}) == {"learner.max_rows": 2048}
    with pytest.raises(RequestError, match="at most 2048 for one agent"):
        overrides.checked(settings, {"learner.max_rows": 2049})


def test_every_whole_number_of_an_agents_settings_has_a_bound() -> None:
    unbounded = []
    for name, field in [*config.Recipe.model_fields.items(), *config.Versions.model_fields.items()]:
        if field.annotation in (int, int | None) and not any(hasattr(rule, "le") for rule in field.metadata):
            unbounded.append(name)
    assert unbounded == ["seed"]


@pytest.mark.parametrize(("port", "remote"), [(8700, 8702), (0, 0)])
def test_the_remote_process_listens_beside_the_gateway(port: int, remote: int) -> None:
    assert config.load(flags={"gateway.port": port}).remote_port == remote


def test_the_cache_follows_the_xdg_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_dir() == Path("/caches/burnish")
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert cache_dir() == tmp_path / ".cache" / "burnish"
