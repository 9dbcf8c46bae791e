"""How deep a score falls, and for how long: cases worked by hand."""

import pytest

from benchmarks.learning.drill.figures import drop, falls


def curve(*scores: float) -> dict[int, float]:
    return {16 * i: score for i, score in enumerate(scores)}


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.1, 0.4, 0.9), 0.0),  # only ever better
        ((0.1, 0.9, 0.3, 0.9), 0.0),  # mended within a period
        ((0.9, 0.6, 0.7), 0.2),  # there at two looks: the lesser of both
        ((0.9, 0.8, 0.7, 0.6), 0.2),  # going down: −.1, −.2, −.3, of which the last two are there for a period with .2
        ((0.9, 0.6, 0.9, 0.5), 0.0),  # twice, each time for less than a period as far as anybody saw
        ((0.5, 0.4, 0.4, 0.9, 0.9), 0.1),  # what it rises to later is not what it fell from
        ((0.5, 0.9, 0.8, 0.3, 0.85), 0.1),
        ((0.9,), 0.0),
        ((0.9, 0.0), 0.0),  # how long the last one would have lasted nobody knows
    ],
)
def test_lasting_falls(scores: tuple[float, ...], expected: float) -> None:
    assert drop(curve(*scores)) == pytest.approx(expected)


def test_looks_count_in_the_order_of_interactions() -> None:
    assert drop({32: 0.7, 0: 0.9, 16: 0.6}) == pytest.approx(0.2)


def test_falls_are_from_the_best_so_far() -> None:
    assert falls(curve(0.2, 0.5, 0.1, 0.6, 0.6)) == pytest.approx([0.0, 0.0, 0.4, 0.0, 0.0])
