"""The gate by slice, simulated: a version that loses 15 points in one of 12 slices and nothing overall, and versions
that are no worse anywhere.

Replies are simulated, and the test is the product's own (adapters/evidence/slices.py): its slices, its rounds, its
verdict. Both versions answer a turn independently of each other. That is the hardest case, because every difference of
luck makes a pair that differs.
"""

import random
from dataclasses import dataclass
from statistics import mean

from benchmarks.bars import Bar, Tell
from burnish.adapters.evidence import slices as slicing
from burnish.adapters.evidence.heldout_replay import Rules
from burnish.adapters.evidence.slices import Slices, State, chosen, known

N_SLICES = 12
RATE = 0.8
"""Share of good replies of the live version."""
LOSS = 0.15
RUNS = 400
HELD_OUT = (200, 1000, 2000, 4000, 8000, 12000)
"""Held-out turns in the journal. The bars are measured with the last number, which is as many as the product searches
with the default holdout: of 240,000 turns.
"""
BARS: tuple[Bar, ...] = (
    (
        "a loss of 15 points in one of 12 slices, caught and named by the gate",
        "slice_caught",
        "≥ 0.9",
        lambda f: f["slice_caught"] >= 0.9,
    ),
    ("versions that are no worse, refused for a slice", "slice_false", "≤ 0.05", lambda f: f["slice_false"] <= 0.05),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the gate found: the slices that fell, the pairs that it asked, those of the fallen or worst slice."""

    fallen: tuple[str, ...]
    n_pairs: int
    n_of_worst: int


def measure(tell: Tell, runs: int = RUNS, seed: int = 1) -> dict[str, float]:
    """Shares of `runs` simulated gates by the number of held-out turns, and the pairs that they asked."""
    figures: dict[str, float] = {}
    for n_held in HELD_OUT:
        tell(f"{runs} gates of either kind with {n_held:,} held-out turns")
        rng = random.Random(f"{seed} {n_held}")
        worse = [gate(rng, n_held, LOSS) for _ in range(runs)]
        same = [gate(rng, n_held, 0.0) for _ in range(runs)]
        caught = mean(found.fallen[:1] == ("slice: 0",) for found in worse)
        false = mean(found.fallen != () for found in same)
        figures |= {f"slice_caught_{n_held}": round(caught, 3), f"slice_false_{n_held}": round(false, 3)}
        figures |= {
            f"slice_pairs_{n_held}": round(mean(found.n_pairs for found in worse)),
            f"slice_pairs_same_{n_held}": round(mean(found.n_pairs for found in same)),
            f"slice_pairs_of_worst_{n_held}": round(mean(found.n_of_worst for found in worse)),
        }
    last = HELD_OUT[-1]
    bars = {"slice_caught": figures[f"slice_caught_{last}"], "slice_false": figures[f"slice_false_{last}"]}
    wrong = mean(figures[f"slice_false_{n_held}"] for n_held in HELD_OUT)
    return {**bars, "slice_false_mean": round(wrong, 4), "slice_held_out": last, "slice_runs": runs, **figures}


def gate(rng: random.Random, n_held: int, loss: float, rules: Rules = Rules()) -> Outcome:  # noqa: B008
    """One held-out replay with its further rounds. What the first slice loses the others gain."""
    left = [(str(number), (f"slice: {rng.randrange(N_SLICES)}",)) for number in range(n_held)]
    asked = dict(left[: rules.n_turns])
    slices = Slices(known(list(asked.values())), rules.slice_margin)
    n_pairs = 0
    while asked:
        for turn, names in asked.items():
            slices.add(turn, names, _outcome(rng, names[0], loss))
        n_pairs += len(asked)
        left = [each for each in left if each[0] not in asked]
        wanted = {one.name for one in slices.of(State.OPEN)}
        n = min(rules.n_turns, rules.most_turns - n_pairs)
        names_of = dict(left)
        further = [] if slicing.faults(slices) else list(chosen(left, wanted, n))
        asked = {turn: names_of[turn] for turn in further}
    fallen, worst = slices.of(State.FALLEN), slices.worst
    return Outcome(tuple(one.name for one in fallen), n_pairs, worst.test.n if worst else 0)


def _outcome(rng: random.Random, name: str, loss: float) -> int:
    """1 if the version's reply is good and the live one's is not, −1 the other way round, else 0."""
    rate = RATE - loss if name == "slice: 0" else RATE + loss / (N_SLICES - 1)
    return int(rng.random() < rate) - int(rng.random() < RATE)
