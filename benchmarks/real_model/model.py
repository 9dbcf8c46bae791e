"""The model of this benchmark, and the defaults that its arms change."""

from collections.abc import Mapping
from typing import Any

from burnish.config import Canary, Gate, Groups, Recipe
from burnish.learner.known_models import cache, known
from burnish.learner.known_models.conversion import CONVERSION

MODEL = known.SMOLLM2
IDENTITY = {"model": MODEL.title, "gguf_sha256": MODEL.gguf_sha256, "conversion": CONVERSION}
UNDER: Mapping[str, Any] = {
    **IDENTITY,
    "learner": Recipe().model_dump(mode="json"),
    **{name: kind().model_dump(mode="json") for name, kind in (("gate", Gate), ("canary", Canary), ("groups", Groups))},
}
"""The defaults that decide a run, the recipe's whole preset among them. A run with other defaults is another run."""


def engine() -> dict[str, Any]:
    """The settings of an engine with the model, which is fetched if it is not there."""
    return {"engine.model": str(cache.ensure(MODEL.name, print))}
