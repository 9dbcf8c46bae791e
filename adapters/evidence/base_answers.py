"""Which forgetting prompts the base passes, as far as it has been asked. The rollout writes it, and `status` reads it.

The file is named by the digests of the prompts and of the base, so another base or another file begins anew.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.adapters.base_model import revision
from burnish.adapters.evidence.gate import N_FORGETTING_PROMPTS, N_MIN_RETENTION
from burnish.config import Settings
from burnish.files import read_json, replace_text


@dataclass(frozen=True, slots=True)
class BaseRecord:
    """The base's answers to the first prompts of a file, in `file`. None keeps nothing."""

    file: Path | None
    identity: str

    @classmethod
    def of(cls, settings: Settings) -> "BaseRecord":
        """The record for the base and the prompts that `settings` name. Raises OSError if the prompts cannot be
        read."""
        prompts, base = settings.forgetting_file, Path(settings.engine.model)
        named = revision(base) if base.is_dir() else settings.engine.model
        identity = f"{named} {hashlib.sha256(prompts.read_bytes()).hexdigest()}"
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return cls(settings.state_dir / "cache" / f"base-answers-{name}.json", identity)

    def read(self) -> list[int | None]:
        """For each prompt asked so far, in the file's order, the length of the base's answer in tokens if it passed,
        else None.
        """
        return list(self._known().get("answers", []))

    def write(self, answers: Sequence[int | None], n_prompts: int) -> None:
        """Replace the record. `n_prompts` is the number of prompts in the file."""
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            known = {"identity": self.identity, "n_prompts": n_prompts, "answers": list(answers)}
            replace_text(self.file, json.dumps(known))

    def progress(self) -> str | None:
        """What stands in the way of the gate, in one sentence. None if enough prompts count."""
        known = self._known()
        answers, n_prompts = known.get("answers", []), known.get("n_prompts")
        n = sum(answer is not None for answer in answers)
        if n >= N_FORGETTING_PROMPTS or (n_prompts is not None and len(answers) >= n_prompts and n >= N_MIN_RETENTION):
            return None
        if n_prompts is None or len(answers) < n_prompts:
            return f"the base is still being asked the forgetting prompts ({n} of {N_FORGETTING_PROMPTS} found)"
        return (
            f"no version can go live: the base passes only {n} of {n_prompts} forgetting prompts, and "
            f"{N_MIN_RETENTION} are needed; name a file of prompts that it passes in gate.forgetting_prompts"
        )

    @property
    def is_complete(self) -> bool:
        """True if the base was asked every prompt."""
        known = self._known()
        return bool(known) and len(known["answers"]) >= known["n_prompts"]

    def _known(self) -> dict[str, Any]:
        known = (read_json(self.file) if self.file is not None else None) or {}
        return known if known.get("identity") == self.identity else {}
