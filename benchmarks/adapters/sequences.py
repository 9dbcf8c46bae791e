"""Error rates of the sequential tests (`adapters/evidence/sequential.py`) on many simulated sequences at a time.

`known` and `paired` compute what `KnownBaseline` and `Paired` compute, after every look
(tests/adapters/evidence/test_sequences_at_once.py compares them). Each sequence has its own outcomes. A sequence is
caught at its first look with E ≥ 1/α.
"""

from math import log
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.bars import Bar, Figures, Tell
from burnish.adapters.evidence.gate import binomial_upper
from burnish.adapters.evidence.sequential import DISCORDANT, KnownBaseline

Outcomes = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]
ALPHA, DELTA, RATE = 0.005, 0.1, 0.8
N_SEQUENCES, N_LOOKS = 5000, 2000
BARS: tuple[Bar, ...] = (
    ("identical versions rolled back, worse of both "
     "tests", "false_rollback_share", "≤ 0.01", lambda f: f["false_rollback_share"] <= 0.01),
    ("20 points worse, known baseline, ≤ 200 "
     "turns", "caught20_share_200", "≥ 0.99", lambda f: f["caught20_share_200"] >= 0.99),
    ("20 points worse, paired, ≤ 400 "
     "pairs", "caught20_share_400p", "≥ 0.99", lambda f: f["caught20_share_400p"] >= 0.99),
    ("10 points worse, paired, ≤ 1,000 "
     "pairs", "caught10_share_1000p", "≥ 0.95", lambda f: f["caught10_share_1000p"] >= 0.95),
)  # fmt: skip


def known(turns: Outcomes, rate: float = RATE, delta: float = DELTA) -> Values:
    """log E of `KnownBaseline` after each turn. `turns` [S, N] → [S, N]."""
    good, bad = KnownBaseline(rate, delta, n_good=1).log_e, KnownBaseline(rate, delta, n_bad=1).log_e
    n_good = np.cumsum(turns, axis=1)
    return n_good * good + (np.arange(1, turns.shape[1] + 1) - n_good) * bad


def paired(baseline: Outcomes, version: Outcomes) -> Values:
    """log E of `Paired` after each pair. Two of [S, N] → [S, N]."""
    losses, wins = np.cumsum(baseline & ~version, axis=1), np.cumsum(~baseline & version, axis=1)
    bets = [log(w) + losses * log(2 * t) + wins * log(2 * (1 - t)) for t, w in DISCORDANT]
    joint: Values = np.logaddexp.reduce(np.stack(bets), axis=0)
    return joint


def caught_at(log_e: Values, alpha: float = ALPHA) -> npt.NDArray[np.int64]:
    """The look, from 1, at which each sequence first reaches 1/α. [S, N] → [S]

    The number of looks plus one if it never does.
    """
    has_crossed = log_e >= -log(alpha)
    return np.where(has_crossed.any(axis=1), has_crossed.argmax(axis=1) + 1, log_e.shape[1] + 1)


def peeked(baseline: Outcomes, version: Outcomes, bound: float, n_min: int = 50) -> npt.NDArray[np.bool_]:
    """Sequences that a naive rule rolls back. [S]

    The rule looks at z = (wins − losses)/√(wins + losses) after every pair from the `n_min`th on.
    """
    losses, wins = np.cumsum(baseline & ~version, axis=1), np.cumsum(~baseline & version, axis=1)
    z = (wins - losses) / np.sqrt(np.maximum(wins + losses, 1))
    return np.asarray((z[:, n_min - 1 :] < bound).any(axis=1))


def measure(_: Path, tell: Tell, n: int = N_SEQUENCES) -> Figures:
    """All figures, each on `n` fresh sequences."""
    chance = np.random.default_rng(20261121)

    def draw(rate: float, looks: int) -> Outcomes:
        return chance.random((n, looks)) < rate

    tell(f"{n:,} sequences of identical versions")
    alarms_known = int((caught_at(known(draw(RATE, N_LOOKS))) <= N_LOOKS).sum())
    baseline, version = draw(RATE, N_LOOKS), draw(RATE, N_LOOKS)
    alarms_paired = int((caught_at(paired(baseline, version)) <= N_LOOKS).sum())
    worse = max(alarms_known, alarms_paired)
    tell(f"{n:,} sequences of worse versions, four times")
    known20 = caught_at(known(draw(0.6, N_LOOKS)))
    known10 = caught_at(known(draw(0.7, N_LOOKS)))
    paired20 = caught_at(paired(draw(RATE, N_LOOKS), draw(0.6, N_LOOKS)))
    paired10 = caught_at(paired(draw(RATE, N_LOOKS), draw(0.7, N_LOOKS)))
    return {
        "false_rollback_share": worse / n,
        "caught20_share_200": float((known20 <= 200).mean()),
        "caught20_share_400p": float((paired20 <= 400).mean()),
        "caught10_share_1000p": float((paired10 <= 1000).mean()),
        "false_rollback_upper95": binomial_upper(worse, n),
        "false_known_share": alarms_known / n,
        "false_paired_share": alarms_paired / n,
        "naive_2.33_false_share": float(peeked(baseline, version, -2.33).mean()),
        "naive_2.58_false_share": float(peeked(baseline, version, -2.5758).mean()),
        "median_turns20": float(np.median(known20)),
        "median_turns10": float(np.median(known10)),
        "median_pairs20": float(np.median(paired20)),
        "median_pairs10": float(np.median(paired10)),
    }
