"""The base class of every settings section, and constants that several sections share."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

SANDBOX_MODEL = Path(__file__).parents[1] / "sandbox" / "model"
_DATA = Path(__file__).parents[1] / "data"
ABILITIES = _DATA / "abilities.jsonl"
"""The forgetting prompts that ship, for any base model."""
ANCHORS = _DATA / "anchors.jsonl"
"""The anchor prompts that ship, for any base model."""
OF_KNOWN_BASES = _DATA / "bases"
"""What the known models (`burnish models list`) say to these prompts, in files like those of a state directory's
cache."""
BASE_NAME = "base"
"""Model name of the frozen base."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


class Section(BaseModel):
    """A section of the tree. Unknown keys fail, and a section cannot change after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
