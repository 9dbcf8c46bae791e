"""What every section of the settings is, and what several of them share."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

SANDBOX_MODEL = Path(__file__).parents[1] / "sandbox" / "model"
BASE_NAME = "base"
"""Model name under which the frozen base answers."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


class Section(BaseModel):
    """A part of the tree: unknown keys fail, and nothing changes it once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
