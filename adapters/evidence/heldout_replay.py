"""The held-out replay: live turns answered again by the candidate and by the live version, and what follows.

The turns belong to sessions that nothing was trained on (adapters/evidence/holdout.py). Both versions answer greedily.
A judge compares the replies (judges/comparison/reply_pair.py), and programs measure length, repetition and tool calls.
Everything is paired: both versions answer the same turns. A candidate that holds overall may have fallen in a slice of
the traffic (adapters/evidence/slices.py). Slices that are still open get further rounds of turns.
"""

from dataclasses import asdict, dataclass, replace

from burnish.adapters.evidence import slices as slicing
from burnish.adapters.evidence.slices import Slices, net_loss_bound

MAX_SHARE_UNDECIDED = 0.2
"""Largest share of undecided pairs. With more of them, the decided pairs may not be like the others."""
UNASKED = "cannot be asked: "
"""The beginning of the reason for a pair without replies: the engine refused the turn, for example for lack of
context."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Measures of one version's replies: mean length in tokens, mean share of repeated word 4-grams, tool calls, and
    how many of those are broken.
    """

    length: float
    repetition: float
    n_calls: int
    n_broken: int


@dataclass(frozen=True)
class Rules:
    """What a replay asks, and which losses against the live version are tolerated."""

    n_turns: int = 200
    """Held-out turns that the candidate and the live version answer, the latest ones."""
    n_min: int = 64
    """Held-out turns with a decided pair that are needed. With fewer no candidate passes."""
    max_tokens: int = 512
    """Longest reply to a held-out turn, in tokens."""
    margin: float = 0.1
    """Largest net share of held-out pairs lost to the live version (one-sided 95 % bound)."""
    length: float = 0.6
    """Largest change of the replies' mean length, as a share."""
    repetition: float = 0.1
    """Largest rise of the share of repeated 4-grams."""
    broken_calls: float = 0.02
    """Largest rise of the share of tool calls that cannot be parsed."""
    judge_seconds: float = 3600.0
    """Seconds that the judge has to compare all pairs of a candidate. After that, the decided pairs count."""
    slice_margin: float = 0.1
    """Net share of a slice's pairs whose loss counts. Operators set it (`gate.slice_margin`). 1: off."""
    most_turns: int = 2400
    """Held-out turns with those of the further rounds for slices that are still open, `n_turns` a round."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Of `n` pairs the candidate's reply was better in `n_won` and the live version's in `n_lost`. The judge left
    `n_undecided` open.

    `n_unasked` more turns make no pair, because the engine refused one version or both.
    """

    n: int
    n_won: int
    n_lost: int
    n_undecided: int
    candidate: Measures
    live: Measures
    rules: Rules
    n_unasked: int = 0
    slices: Slices | None = None
    """By slice, with the pairs of the further rounds, which count nowhere else."""

    @property
    def n_decided(self) -> int:
        """The number of decided pairs."""
        return self.n - self.n_undecided

    @property
    def loss_bound(self) -> float:
        """Upper 95 % bound on the net share of pairs lost."""
        return net_loss_bound(self.n_lost, self.n_won, self.n_decided)

    def as_dict(self) -> dict[str, object]:
        """The figures without the slices, to store and to read."""
        shown = asdict(replace(self, slices=None))
        del shown["slices"]
        return {**shown, "n_decided": self.n_decided, "loss_bound": self.loss_bound}


def faults(replay: Replay | None) -> list[str]:
    """The reasons against a candidate. Insufficient evidence is never a pass."""
    if replay is None:
        return ["insufficient evidence: no held-out turns were answered again"]
    rules, found = replay.rules, []
    n_turns = replay.n + replay.n_unasked
    refused = f"the engine refused {replay.n_unasked} of {n_turns} held-out turns"
    if replay.n_decided < rules.n_min:
        also = f"; {refused}" if replay.n_unasked else ""
        found.append(f"insufficient evidence: {replay.n_decided} held-out pairs decided, {rules.n_min} needed{also}")
    elif replay.n_unasked > MAX_SHARE_UNDECIDED * n_turns:
        found.append(f"insufficient evidence: {refused}")
    elif replay.n_undecided > MAX_SHARE_UNDECIDED * replay.n:
        found.append(
            f"insufficient evidence: the judge left {replay.n_undecided} of {replay.n} held-out pairs undecided"
        )
    elif replay.loss_bound > rules.margin:
        found.append(
            f"lost {replay.n_lost} and won {replay.n_won} of {replay.n_decided} held-out pairs: up to "
            f"{replay.loss_bound:.1%} net lost "
            f"at 95 % confidence, {100 * rules.margin:.3g}% tolerated"
        )
    return found + slicing.faults(replay.slices) + _measured(replay)


def _measured(replay: Replay) -> list[str]:
    new, old, rules = replay.candidate, replay.live, replay.rules
    found = []
    if old.length and abs(new.length / old.length - 1.0) > rules.length:
        found.append(
            f"replies of {new.length:.1f} tokens on held-out turns where the live version has {old.length:.1f}"
        )
    if new.repetition - old.repetition > rules.repetition:
        found.append(
            f"repeats {new.repetition:.1%} of its 4-grams on held-out turns, the live version {old.repetition:.1%}"
        )
    before, after = _share(old), _share(new)
    if after - before > rules.broken_calls:
        found.append(
            f"{after:.1%} of its tool calls on held-out turns cannot be read, of the live version's {before:.1%}"
        )
    return found


def _share(measures: Measures) -> float:
    return measures.n_broken / measures.n_calls if measures.n_calls else 0.0
