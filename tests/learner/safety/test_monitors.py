"""Each monitor's levels on windows made by hand, and its reading if nothing was measured."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.config import ConfigError, Recipe, load
from burnish.learner.safety.monitor_state import FIRST_KEPT, RECENT_KEPT, MonitorState
from burnish.learner.safety.monitors import REGISTRY, History, Level, Reading, read, worst, z_score

DEFAULTS = Recipe(monitor_entropy=(0.4, 1.0), min_entropy=0.05, monitor_kl=(0.05, 0.2), monitor_length=(0.3, 0.6))
GREEN, YELLOW, RED = Level.GREEN, Level.YELLOW, Level.RED


def history(**series: list[float]) -> History:
    """Steps with metrics given one by one. `_` in a name stands for `/` if the metric has one."""
    names = {"kl": "kl_to_base/k3", "mismatch": "offpolicy/mismatch_k3"}
    n_steps = len(next(iter(series.values())))
    steps = [{names.get(name, name): values[i] for name, values in series.items()} for i in range(n_steps)]
    return History(steps[:FIRST_KEPT], steps[-RECENT_KEPT:])


def level(name: str, steps: History, settings: Recipe = DEFAULTS) -> Level | None:
    reading = REGISTRY[name](steps, settings)
    return reading.level if reading is not None else None


@pytest.mark.parametrize(
    ("name", "series", "expected"),
    [
        ("entropy", [1.0] * 4, None),
        ("entropy", [1.0] * 8, GREEN),
        ("entropy", [1.0] * 5 + [0.65] * 5, GREEN),
        ("entropy", [1.0] * 5 + [0.55] * 5, YELLOW),
        ("entropy", [1.0] * 5 + [1.5] * 5, YELLOW),
        ("entropy", [1.0] * 5 + [2.1] * 5, RED),
        ("entropy", [0.04] * 3, RED),
        ("length", [100.0] * 5 + [125.0] * 5, GREEN),
        ("length", [100.0] * 5 + [65.0] * 5, YELLOW),
        ("length", [100.0] * 5 + [35.0] * 5, RED),
        ("length", [100.0] * 5 + [165.0] * 5, RED),
        ("length", [100.0] * 9 + [220.0], GREEN),  # one step alone is a fifth of the present
        ("kl", [0.04] * 3, GREEN),
        ("kl", [0.06] * 3, YELLOW),
        ("kl", [0.0, 0.0, 0.9], RED),
        ("repetition", [0.4] * 12, GREEN),  # it was always like this
        ("repetition", [0.9] * 4, None),
        ("repetition", [0.02] * 5 + [0.15] * 5, YELLOW),
        ("repetition", [0.02] * 5 + [0.5] * 5, RED),
        ("mismatch", [1e-5], GREEN),
        ("mismatch", [3e-3], GREEN),
        ("mismatch", [2e-2], YELLOW),
        ("mismatch", [2e-1], RED),
        ("grad_z", [0.0], GREEN),
        ("grad_z", [4.5], YELLOW),
        ("grad_z", [9.0, 0.0, 4.5], YELLOW),
        ("grad_z", [9.0, 0.0], GREEN),
        ("grad_z", [7.0], YELLOW),
        ("grad_z", [7.0, 0.0, 7.0], RED),
    ],
)
def test_levels(name: str, series: list[float], expected: Level | None) -> None:
    assert level("grad_norm" if name == "grad_z" else name, history(**{name: series})) is expected


@pytest.mark.parametrize(
    ("stds", "means", "expected"),
    [
        ([0.9] * 8, [0.0] * 8, GREEN),
        ([0.9] * 5 + [0.5] * 5, [0.0] * 10, YELLOW),
        ([0.9] * 5 + [0.3] * 5, [0.0] * 10, RED),
        # almost all replies are liked: that is the purpose of learning
        ([0.9] * 5 + [0.3] * 5, [0.0] * 5 + [0.9] * 5, GREEN),
        ([0.9] * 5 + [0.0] * 3, [0.0] * 5 + [0.0] * 3, RED),
        # users changed their mind, or a version is bad: the watch takes a bad one back, and learning goes on
        ([0.9] * 5 + [0.0] * 3, [0.0] * 5 + [-1.0] * 3, GREEN),
        ([0.9] * 5 + [0.3] * 5, [0.0] * 5 + [-0.9] * 5, GREEN),
        ([0.9] * 5 + [0.0] * 2, [0.0] * 5 + [-1.0] * 2, GREEN),
        ([1.0] * 6 + [0.0] * 5 + [0.87, 1.0], [0.0] * 6 + [-1.0] * 5 + [-0.5, 0.0], GREEN),  # and learns their new wish
        ([0.5, 0.3] + [0.0] * 4 + [0.0, 0.0, 0.66], [0.5, 0.9] + [1.0] * 4 + [-1.0, -1.0, -0.75], GREEN),
        ([0.0] * 6, [0.5] * 6, YELLOW),
        # nobody has praised anything yet, or two replies of eighty
        ([0.0] * 6, [-1.0] * 6, GREEN),
        ([0.0, 0.33, 0.33, 0.0, 0.0, 0.0], [-1.0, -0.875, -0.875, -1.0, -1.0, -1.0], GREEN),
        ([0.9] * 5 + [0.0] * 6, [-0.5] * 5 + [-1.0] * 6, GREEN),
        ([0.0] * 6, [1.0] * 6, GREEN),
        ([0.9] * 4, [0.0] * 4, None),
    ],
)
def test_spread_falls_by_collapse_or_by_success(stds: list[float], means: list[float], expected: Level | None) -> None:
    assert level("spread", history(reward_std=stds, reward_mean=means)) is expected


@pytest.mark.parametrize(
    ("n_broken", "expected"), [([0.0] * 10, GREEN), ([0.0] * 5 + [0.4] * 5, YELLOW), ([0.0] * 5 + [1.0] * 5, RED)]
)
def test_tool_calls_are_compared_with_the_first_fifty(n_broken: list[float], expected: Level) -> None:
    assert level("tool_json", history(n_calls=[10.0] * 10, n_broken_calls=n_broken)) is expected


def test_few_calls_give_no_reading() -> None:
    assert level("tool_json", history(n_calls=[10.0] * 4, n_broken_calls=[10.0] * 4)) is None


def test_a_metric_that_was_not_measured_has_no_reading() -> None:
    assert read(history(reward_mean=[0.1] * 30), DEFAULTS) == {}
    assert read(History((), ()), DEFAULTS) == {}
    assert worst({}) is GREEN
    stale = History([], [{"kl_to_base/k3": 9.0}, {"entropy": 1.0}])
    assert level("kl", stale) is None


def test_the_worst_reading_counts_and_limits_are_settings() -> None:
    steps = history(kl=[0.1] * 10, repetition=[0.1] * 5 + [0.5] * 5)
    readings = read(steps, DEFAULTS)
    assert {name: reading.level for name, reading in readings.items()} == {"kl": YELLOW, "repetition": RED}
    assert worst(readings) is RED
    assert worst(read(steps, Recipe(monitor_repetition=(0.6, 0.7), monitor_kl=(1.0, 1.0)))) is GREEN
    assert readings["kl"].to_json() == {
        "level": "yellow",
        "value": pytest.approx(0.1),
        "why": "nats a token from the base: 0.1",
    }


@pytest.mark.parametrize("limits", [[0.3, 0.1], [0.0, 0.1], [0.1]])
def test_invalid_limits_are_refused(limits: list[float]) -> None:
    with pytest.raises(ConfigError, match="monitor_kl"):
        load(flags={"learner.recipe.monitor_kl": limits})


def test_z_scores_by_hand() -> None:
    assert z_score([1.0] * 15, 5.0) is None
    assert z_score([1.0] * 16, 4.0) == pytest.approx(6.0)  # a deviation of half the mean is the least
    assert z_score([0.0, 2.0] * 8, 1.0 + 3 * math.sqrt(16 / 15)) == pytest.approx(3.0)
    assert z_score([9.0] * 30 + [1.0] * 64, 1.0) == pytest.approx(0.0)  # the last 64 count
    assert z_score([0.0] * 20, 0.0) == 0.0
    assert z_score([], math.nan) == z_score([], math.inf) == math.inf


def test_norms_that_have_grown_for_good_are_outliers_only_for_a_while() -> None:
    monitor_state, skipped = MonitorState(DEFAULTS), 0
    for norm in [1.0] * 64 + [50.0] * 10:
        score = monitor_state.z_score(norm)
        skipped += score is not None and score > DEFAULTS.outlier_z
        monitor_state.observe({"grad_norm": norm} | ({"grad_z": score} if score is not None else {}))
    assert 1 <= skipped <= 3


floats = st.floats(-1e6, 1e6)
STEPS = st.lists(
    st.dictionaries(
        st.sampled_from(["entropy", "length", "kl_to_base/k3", "reward_std", "reward_mean", "grad_norm", "n_calls"]),
        floats,
    ),
    max_size=90,
)


@given(STEPS)
def test_the_monitors_memory_survives_json(steps: list[dict[str, float]]) -> None:
    one, two = MonitorState(DEFAULTS), MonitorState(DEFAULTS)
    for step in steps:
        one.observe(step)
    state = one.state()
    two.restore(json.loads(json.dumps(state)))
    assert two.state() == state
    assert len(state["first"]) <= FIRST_KEPT and len(state["recent"]) <= RECENT_KEPT
    following: dict[str, Any] = {"entropy": 0.5, "grad_norm": 1.0, "length": math.nan}
    assert one.observe(following) == two.observe(following)
    assert all(isinstance(reading, Reading) for reading in one.observe({}).values())
    two.restore({})
    assert two.state() == MonitorState(DEFAULTS).state()


@given(STEPS, STEPS)
def test_readings_depend_only_on_the_steps(first: list[dict[str, float]], recent: list[dict[str, float]]) -> None:
    steps = History(first, recent)
    assert read(steps, DEFAULTS) == read(steps, DEFAULTS)
