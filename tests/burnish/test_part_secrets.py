"""What a part's environment holds: the settings, without secrets that another part alone needs."""

import pytest

from burnish import config
from burnish.config import Settings, to_environment
from burnish.processes.parts import SECRETS, parts_of

PLANTED = {key: f"planted-{number}" for number, key in enumerate(SECRETS)}


@pytest.fixture
def settings() -> Settings:
    return config.load(flags={"remote.model": "openai/x", "judge.model": "openai/y", **PLANTED})


def test_a_secret_is_in_the_environment_of_the_part_that_needs_it_alone(settings: Settings) -> None:
    inherited = {**to_environment(settings), "PATH": "/bin"}  # the operator may have exported them
    parts = parts_of(settings, inherited)
    assert set(SECRETS.values()) <= {part.name for part in parts}
    for key, owner in SECRETS.items():
        holders = {part.name for part in parts if PLANTED[key] in part.environment.values()}
        assert holders == {owner}, key
    assert all(part.environment["PATH"] == "/bin" for part in parts)


def test_every_secret_of_the_settings_has_an_owner() -> None:
    """The engine's own key and the journal's address are needed by every part."""
    found = {key for key in config.described() if key.endswith(("api_key", "webhook", "journal.url"))}
    assert found == {*SECRETS, "engine.api_key", "journal.url"}


def test_no_secret_is_in_a_command_line(settings: Settings) -> None:
    words = [word for part in parts_of(settings, {}) for word in part.command]
    assert not any(secret in word for secret in PLANTED.values() for word in words)
