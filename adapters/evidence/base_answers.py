"""Which forgetting prompts the base passes, as far as it has been asked. The rollout writes it, and `status` reads it.

The file is named by the digests of the prompts and of the base, so another base or another file begins anew. The
answers of known models ship.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.adapters.base_model import revision
from burnish.adapters.evidence.gate import N_FORGETTING_PROMPTS, N_MIN_RETENTION
from burnish.config import ABILITIES, OF_KNOWN_BASES, Settings
from burnish.files import read_json, replace_text

N_BASE_ANSWERS = 5
"""Answers of the base to a forgetting prompt that must all pass."""
ANOTHER_FILE = "name a file of prompts that it passes in gate.forgetting_prompts"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the gate lacks from the base, in words. `is_alarm`: no version can go live. `is_final`: it stays so."""

    what: str
    remedy: str = ""
    is_alarm: bool = False
    is_final: bool = True

    @property
    def sentence(self) -> str:
        return "; ".join(filter(None, (self.what, self.remedy)))


def standing(
    answers: Sequence[int | None], n_prompts: int | None, n_comparable: int | None, *, has_fallback: bool
) -> Standing | None:
    """The standing after the base's `answers` to the first of `n_prompts` prompts (None: not known yet). None if enough
    prompts count.

    `n_comparable` is the number of prompts on which predictions can be compared (None: not known yet). Without a
    fallback they are not.
    """
    n = sum(answer is not None for answer in answers)
    is_complete = n_prompts is not None and len(answers) >= n_prompts
    if n >= N_FORGETTING_PROMPTS or (is_complete and n >= N_MIN_RETENTION):
        return None
    if not is_complete:
        found = f"{n} of {N_FORGETTING_PROMPTS} found"
        return Standing(f"the base is still being asked the forgetting prompts ({found})", is_final=False)
    passes = f"the base passes only {n} of {n_prompts} forgetting prompts"
    if not has_fallback:
        return Standing(
            f"no version can go live: {passes}, and {N_MIN_RETENTION} are needed", ANOTHER_FILE, is_alarm=True
        )
    if n_comparable is None:
        return Standing(f"{passes} ({N_MIN_RETENTION} are needed), and is being asked for predictions", is_final=False)
    if n_comparable < N_MIN_RETENTION:
        return Standing(
            f"no version can go live: {passes}, and the engine accepts only {n_comparable} of them; "
            f"{N_MIN_RETENTION} are needed",
            "the model's context (engine.max_model_len) may be too short for them: take a model with a longer one, or "
            "name a file of short prompts that it passes in gate.forgetting_prompts",
            is_alarm=True,
        )
    return Standing(
        f"{passes} ({N_MIN_RETENTION} are needed), so the gate compares predictions with the base's: it sees a "
        "collapse, but no lost ability",
        ANOTHER_FILE,
    )


@dataclass(frozen=True, slots=True)
class BaseRecord:
    """The base's answers to the first prompts of a file, in `file`. None keeps nothing. `has_fallback`: predictions are
    compared if the base passes too few.
    """

    file: Path | None
    identity: str
    has_fallback: bool = False

    @classmethod
    def of(cls, settings: Settings) -> "BaseRecord":
        """The record for the base and the prompts that `settings` name. Raises OSError if the prompts cannot be
        read.

        Only the general prompts have the fallback. Who names a file has said what must not be lost.
        """
        prompts, base = settings.forgetting_file, Path(settings.engine.model)
        named = revision(base) if base.is_dir() else settings.engine.model
        # the rule by which prompts count is part of it: an older record was made by another one
        identity = f"{named} {hashlib.sha256(prompts.read_bytes()).hexdigest()} passed {N_BASE_ANSWERS} times"
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        file = settings.state_dir / "cache" / f"base-answers-{name}.json"
        return cls(file, identity, has_fallback=prompts == ABILITIES)

    def read(self) -> list[int | None]:
        """For each prompt asked so far, in the file's order, the length of the base's answer in tokens if it passed,
        else None.
        """
        return list(self._known().get("answers", []))

    def write(self, answers: Sequence[int | None], n_prompts: int, n_comparable: int | None = None) -> None:
        """Replace the record. `n_prompts` is the number of prompts in the file."""
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            known = {
                "identity": self.identity,
                "n_prompts": n_prompts,
                "answers": list(answers),
                "n_comparable": n_comparable,
            }
            replace_text(self.file, json.dumps(known))

    def standing(self) -> Standing | None:
        """What the gate lacks from the base. None if nothing."""
        known = self._known()
        return standing(
            known.get("answers", []), known.get("n_prompts"), known.get("n_comparable"), has_fallback=self.has_fallback
        )

    def _known(self) -> dict[str, Any]:
        if self.file is None:
            return {}
        known = read_json(self.file) or read_json(OF_KNOWN_BASES / self.file.name) or {}
        return known if known.get("identity") == self.identity else {}
