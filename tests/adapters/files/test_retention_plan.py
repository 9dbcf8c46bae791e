"""Retention for any history of versions: what may go, and that a used version never does."""

from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.files.retention import DAY, Kept, Plan, Uses, plan
from burnish.records import VersionState

NOW = 1_000 * DAY
NUMBERS = st.sets(st.integers(1, 30), max_size=8)
FINAL = (VersionState.RETIRED, VersionState.REFUSED, VersionState.ROLLED_BACK)


@st.composite
def histories(draw: st.DrawFn) -> list[Kept]:
    found = []
    for number in sorted(draw(st.sets(st.integers(1, 30), max_size=20))):
        state = draw(st.sampled_from([*VersionState, "something new"]))
        decided = draw(st.none() | st.floats(0, NOW))
        found.append(Kept(number, state, decided, draw(st.booleans()), draw(st.booleans())))
    return found


uses = st.builds(
    Uses,
    aliases=NUMBERS,
    canaries=NUMBERS,
    loaded=NUMBERS,
    in_flight=st.none() | NUMBERS,
    jobs=NUMBERS,
    step_parents=NUMBERS,
)


def made(versions: list[Kept], used: Uses, keep_live: int = 2, days: float = 7.0) -> Plan:
    return plan(versions, used, keep_live=keep_live, keep_refused_days=days, now=NOW)


@given(histories(), uses, st.integers(0, 6), st.floats(0, 30))
def test_nothing_in_use_is_ever_removed(versions: list[Kept], used: Uses, keep_live: int, days: float) -> None:
    result = made(versions, used, keep_live, days)
    by_number = {version.number: version for version in versions}
    assert set(result.remove).isdisjoint(result.keep)
    assert {*result.remove, *result.keep} == {version.number for version in versions if not version.is_removed}
    for number in result.remove:
        assert used.in_flight is not None
        for group in (used.aliases, used.canaries, used.loaded, used.in_flight, used.jobs, used.step_parents):
            assert number not in group
        assert by_number[number].state in FINAL
        assert not by_number[number].is_pinned
    assert all(result.keep.values()) and all(result.remove.values())


@given(histories(), uses, st.integers(0, 6))
def test_what_is_removed_is_older_than_what_is_kept_for_having_been_live(
    versions: list[Kept], used: Uses, keep_live: int
) -> None:
    result = made(versions, used, keep_live)
    once = {v.number: v.decided_at or 0.0 for v in versions if v.state == VersionState.RETIRED}
    gone = [once[number] for number in result.remove if number in once]
    kept = [once[number] for number, why in result.keep.items() if why.startswith("once live")]
    assert len(kept) <= keep_live
    assert not gone or not kept or max(gone) <= min(kept)
    if gone:
        assert len(kept) == keep_live


@given(histories(), uses, st.integers(0, 6))
def test_removing_what_may_go_leaves_nothing_more_to_remove(versions: list[Kept], used: Uses, keep_live: int) -> None:
    first = made(versions, used, keep_live)
    after = [
        Kept(v.number, v.state, v.decided_at, v.is_pinned, v.is_removed or v.number in first.remove) for v in versions
    ]
    assert made(after, used, keep_live).remove == {}


def test_by_hand() -> None:
    versions = [Kept(n, "retired", n * DAY) for n in (1, 2, 3, 4, 5)]
    versions += [
        Kept(6, "refused", NOW - 8 * DAY),
        Kept(7, "refused", NOW - DAY),
        Kept(8, "live", NOW),
        Kept(9, "candidate", None),
    ]
    result = made(versions, Uses(aliases={8, 5}, in_flight={1}))
    assert result.remove == {2: "once live, long ago", 6: "refused, decided 8.0 days ago"}
    assert result.keep == {
        1: "a request is under way on it",
        3: "once live, 2 of the last 2",
        4: "once live, 1 of the last 2",
        5: "an alias names it",
        7: "refused, decided 1.0 days ago",
        8: "an alias names it",
        9: "is candidate",
    }
    assert made(versions, Uses(in_flight=None)).remove == {}
