"""docs/reference/objectives.md and explanation/learner.md have a row for every choice, reading and reason."""

from pathlib import Path
from typing import get_args

import pytest

from burnish.cli.settings import recipe_markdown
from burnish.config import Recipe
from burnish.learner.data.samples import SkipReason
from burnish.learner.objectives.registry import REGISTRY
from burnish.learner.safety import monitors

DOCS = Path(__file__).parents[3] / "docs"


def rows(page: str) -> str:
    return "\n".join(line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.startswith("|"))


@pytest.mark.parametrize("name", [*REGISTRY, *monitors.REGISTRY])
def test_every_objective_and_monitor_has_a_row(name: str) -> None:
    assert f"| `{name}`" in rows("reference/objectives.md")


@pytest.mark.parametrize("setting", ["advantage", "correction", "policy_loss", "distill_form"])
def test_every_choice_has_a_row(setting: str) -> None:
    for choice in get_args(Recipe.model_fields[setting].annotation):
        assert f'"{choice}"' in rows("reference/objectives.md")


@pytest.mark.parametrize("reason", list(SkipReason))
def test_every_reason_has_a_row(reason: SkipReason) -> None:
    assert f"`{reason}`" in rows("explanation/learner.md")


@pytest.mark.parametrize("name", [name for name in Recipe.model_fields if name.startswith("monitor_")])
def test_every_limit_of_a_monitor_is_in_its_row(name: str) -> None:
    assert f"`{name}`" in rows("reference/objectives.md")


def test_the_page_shows_the_actual_recipe() -> None:
    assert recipe_markdown() in (DOCS / "reference" / "recipe.md").read_text(encoding="utf-8")
