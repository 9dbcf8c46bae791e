"""deploy/: every file parses, and all paths, verbs, settings and image contents in it exist."""

import configparser
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from benchmarks.security import images
from burnish import config
from burnish.cli import app
from burnish.processes.environments import SECRETS, WITH_JOURNAL

HOME = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted((HOME / "deploy" / "docker").glob("*.Dockerfile"))
INSTRUCTIONS = {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
VARIABLES = {f"BURNISH_{key.replace('.', '__')}".upper() for key in config.described()}


def is_command(words: list[str]) -> bool:
    """Whether `burnish WORDS` is a command. `burnish WORDS --help` fails if it is not."""
    return CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, rest) with continued lines joined."""
    lines = [
        line for line in path.read_text().replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")
    ]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((HOME / "deploy" / "compose.yaml").read_text())
    return tree


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_copies_what_exists_and_runs_a_verb(path: Path) -> None:
    found = instructions(path)
    arguments = [("ARG", "PYTHON_IMAGE=python:3.12-slim"), ("ARG", "PYTHON_DIGEST")]  # no default: none was looked up
    assert found[:3] == [*arguments, ("FROM", "${PYTHON_IMAGE}@${PYTHON_DIGEST}")]
    assert {name for name, _ in found} <= INSTRUCTIONS
    for name, rest in found:
        if name == "COPY":
            *sources, _ = rest.split()
            assert all((HOME / source).exists() for source in sources), rest
        if name == "ENV":
            assert set(re.findall(r"BURNISH_\w+", rest)) <= VARIABLES
    assert dict(found)["ENTRYPOINT"] == '["burnish"]'
    assert is_command(json.loads(dict(found)["CMD"]))


def test_there_are_three_images_and_none_runs_as_root() -> None:
    assert [path.name for path in DOCKERFILES] == ["engine.Dockerfile", "gateway.Dockerfile", "learner.Dockerfile"]
    for path in DOCKERFILES:
        assert dict(instructions(path))["USER"] == "burnish"


def test_the_gateway_image_has_neither_torch_nor_vllm() -> None:
    (install,) = [rest for name, rest in instructions(HOME / "deploy/docker/gateway.Dockerfile") if name == "RUN"]
    assert re.findall(r"--extra (\w+)", install) == ["otel"]  # no other extra
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    heavy = re.compile(r"^(torch|vllm|peft|transformers|ray)\b")
    wanted = [*project["dependencies"], *project["optional-dependencies"]["otel"]]
    assert [name for name in wanted if heavy.match(name)] == []
    assert [name for name in project["optional-dependencies"]["gpu"] if heavy.match(name)] != []


def test_compose_services_run_verbs_with_real_settings(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {"engine", "gateway", "ingester", "swapper", "judge", "learner", "database"} == set(services)
    for name, service in services.items():
        if "build" in service:
            context = HOME / "deploy" / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).exists()
            named = {key for key in service["environment"] if key.startswith("BURNISH_")}
            assert named <= VARIABLES, name
            assert is_command(service.get("command", [])), name
        for needed in service.get("depends_on", {}):
            assert needed in services
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or source.startswith("${")


def test_every_container_is_confined(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"] and service["pids_limit"] <= 4096, name
        assert "privileged" not in service and "network_mode" not in service, name
        written = [place.partition(":")[0] for place in service["tmpfs"]]
        assert "/tmp" in written and "/state" not in written, name
        assert service.get("user", "999:999") != "root", name


def test_no_image_is_taken_without_its_digest(compose: dict[str, Any]) -> None:
    """Compose refuses an empty `:?`, with the command that tells the digest."""
    services = compose["services"]
    image, _, digest = services["database"]["image"].partition("@")
    builds = [service["build"]["args"] for service in services.values() if "build" in service]
    assert builds and image == "${POSTGRES_IMAGE:-postgres:17}"
    for needed in (digest, *(each["PYTHON_DIGEST"] for each in builds)):
        assert re.fullmatch(r"\$\{\w+_DIGEST:\?docker buildx imagetools inspect [^{}]+\}", needed)
    example = (HOME / "deploy" / "example.env").read_text()
    assert re.findall(r"^\w+_DIGEST=(.*)$", example, re.MULTILINE) == ["", ""]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_installs_nothing_without_a_hash(path: Path) -> None:
    install = " ".join(rest for name, rest in instructions(path) if name == "RUN")
    commands = [each.strip() for each in re.split(r"&&", install) if "pip install" in each]
    assert all("--require-hashes" in each for each in commands[:-1])
    assert "--no-deps --no-build-isolation ." in commands[-1] and len(commands) == 3


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_holds_compiled_code_because_its_user_cannot_write_any(path: Path) -> None:
    install = " ".join(rest for name, rest in instructions(path) if name == "RUN")
    commands = [each for each in re.split(r"&&", install) if "uv pip install" in each]
    assert len(commands) == 2 and all("--compile-bytecode" in each for each in commands)


def test_a_container_has_the_secrets_that_it_needs_and_no_other(compose: dict[str, Any]) -> None:
    def has(secret: str) -> set[str]:
        return {name for name, each in compose["services"].items() if f"${{{secret}" in str(each["environment"])}

    kinds = set(compose["services"]) - {"database"}
    assert has("DATABASE_PASSWORD") - {"database"} == kinds & WITH_JOURNAL == kinds - {"engine"}
    assert has("ENGINE_KEY") == kinds & SECRETS["engine.api_key"]


def test_only_the_gateway_is_published_and_on_loopback(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert list(published) == ["gateway"]
    assert all(port.startswith("127.0.0.1:") for port in published["gateway"])


def test_every_variable_that_compose_wants_is_in_the_example(compose: dict[str, Any]) -> None:
    wanted = set(re.findall(r"\$\{(\w+)", (HOME / "deploy" / "compose.yaml").read_text()))
    given = {line.split("=")[0] for line in (HOME / "deploy" / "example.env").read_text().splitlines() if "=" in line}
    assert wanted == given


def test_only_the_swapper_is_told_where_traces_go(compose: dict[str, Any]) -> None:
    told = {
        name for name, service in compose["services"].items() if any("OTEL_" in key for key in service["environment"])
    }
    assert told == {"swapper"}


def test_the_systemd_unit_runs_burnish_up_with_real_settings() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(HOME / "deploy" / "systemd" / "burnish.service")
    assert unit["Service"]["ExecStart"].split("/")[-1] == "burnish up"
    assert is_command(["up"]) and not is_command(["upp"])
    text = (HOME / "deploy" / "systemd" / "burnish.service").read_text()
    assert set(re.findall(r"Environment=(BURNISH_\w+)=", text)) - {"BURNISH_CONFIG"} <= VARIABLES
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_no_image_holds_a_secret_that_lies_in_the_checkout(tmp_path: Path) -> None:
    assert images.secrets_copied(tmp_path) == []
    assert (tmp_path / "src" / ".env").exists(), "it was there to be found"


def test_a_secret_that_nothing_leaves_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "PLACES", ("src/password.txt", "notes/password.txt"))
    assert images.secrets_copied(tmp_path) == ["src/password.txt"]
