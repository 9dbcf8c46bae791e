"""What a part's environment holds: the settings and listed variables, without secrets that the part does not need."""

import pytest

from burnish import config
from burnish.config import Settings, to_environment
from burnish.processes.environments import SECRETS, WITH_JOURNAL
from burnish.processes.parts import DESCRIPTIONS, parts_of

PLANTED = {key: f"planted-{number}" for number, key in enumerate(SECRETS)}


@pytest.fixture
def settings() -> Settings:
    return config.load(flags={"remote.model": "openai/x", "judge.model": "openai/y", **PLANTED})


def holders(settings: Settings, variables: dict[str, str], value: str) -> set[str]:
    return {part.name for part in parts_of(settings, variables) if value in str(part.environment)}


def test_a_secret_is_in_the_environment_of_the_part_that_needs_it_alone(settings: Settings) -> None:
    """The operator may have exported it, in any form that the settings are read in."""
    forms = {name.lower(): value for name, value in to_environment(settings).items()}
    forms |= {"BURNISH_JUDGE": '{"api_key": "planted-1"}', **to_environment(settings)}
    assert {part.name for part in parts_of(settings, forms)} == set(DESCRIPTIONS)
    for key, owners in SECRETS.items():
        assert holders(settings, forms, PLANTED[key]) == owners, key


def test_every_secret_of_the_settings_has_an_owner() -> None:
    assert {key for key in config.described() if key.endswith(("api_key", "webhook", "journal.url"))} == {*SECRETS}


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("AWS_SECRET_ACCESS_KEY", {"remote", "judge"}),
        ("OPENAI_API_KEY", {"remote", "judge"}),
        ("SOME_NEW_PROVIDER_API_KEY", {"remote", "judge"}),
        ("LITELLM_LOG", {"remote", "judge"}),
        ("HF_TOKEN", {"engine", "learner", "remote", "judge"}),
        ("VLLM_API_KEY", {"engine", "remote", "judge"}),
        ("VLLM_ATTENTION_BACKEND", {"engine"}),
        ("PGPASSWORD", WITH_JOURNAL),
        ("OTEL_EXPORTER_OTLP_HEADERS", {"swapper"}),
        ("NVIDIA_API_KEY", {"remote", "judge"}),
        ("NVIDIA_VISIBLE_DEVICES", set(DESCRIPTIONS)),
        ("RAY_ADDRESS", {"judge"}),
        ("GITHUB_TOKEN", set()),
        ("Burnish_Judge__API_KEY", set()),
        ("SLACK_TOKEN", set()),
        ("DATABASE_PASSWORD", set()),
        ("BURNISH_UNKNOWN_API_KEY", set()),
        ("HTTPS_PROXY", set(DESCRIPTIONS)),
        ("https_proxy", set(DESCRIPTIONS)),
        ("CUDA_VISIBLE_DEVICES", set(DESCRIPTIONS)),
        ("PYTHONPATH", set(DESCRIPTIONS)),
        ("LC_ALL", set(DESCRIPTIONS)),
        ("BURNISH_CONFIG", set(DESCRIPTIONS)),
    ],
)
def test_a_part_inherits_what_is_listed_for_it(settings: Settings, name: str, owners: set[str]) -> None:
    assert holders(settings, {name: "planted-value"}, "planted-value") == owners


def test_engine_and_learner_keep_few_compiled_matrix_products_unless_the_user_wants_more(settings: Settings) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    default = {part.name: part.environment.get(name) for part in parts_of(settings, {})}
    assert {part: value for part, value in default.items() if value} == {"engine": "128", "learner": "128"}
    chosen = {part.name: part.environment[name] for part in parts_of(settings, {name: "9"})}
    assert set(chosen.values()) == {"9"}


def test_a_judge_on_the_engine_gets_no_providers_variables() -> None:
    assert holders(Settings(), {"OPENAI_API_KEY": "planted-value"}, "planted-value") == set()


def test_no_secret_is_in_a_command_line(settings: Settings) -> None:
    words = [word for part in parts_of(settings, {}) for word in part.command]
    assert not any(secret in word for secret in PLANTED.values() for word in words)
