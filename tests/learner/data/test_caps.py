"""Caps: values by hand, and no share exceeds its cap under any distribution of rows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.learner.data.caps import JUDGED, MIN_WEIGHT, Voice, thin, trusted, weights

CAPS = {"user": 0.25, "session": 1.0, "new_users": 1.0}


def voices(sizes: dict[str, float], new: str = "") -> list[Voice]:
    return [Voice(name, f"session of {name}", size, name in new) for name, size in sizes.items()]


def shares(crowd: list[Voice], found: list[float], by: str) -> dict[object, float]:
    total = sum(voice.size * weight for voice, weight in zip(crowd, found, strict=True))
    kept: dict[object, float] = {}
    for voice, weight in zip(crowd, found, strict=True):
        kept[getattr(voice, by)] = kept.get(getattr(voice, by), 0.0) + voice.size * weight / total
    return kept


def test_a_loud_user_is_brought_down_to_the_cap() -> None:
    """Five users, one with 60 of 100: 40 and a quarter of the whole are left, T = 40 + T/4 = 53 1/3, so 13 1/3."""
    found = weights(voices({"a": 60, "b": 10, "c": 10, "d": 10, "e": 10}), **CAPS)
    assert found == pytest.approx([2 / 9, 1.0, 1.0, 1.0, 1.0])


def test_with_four_users_all_weigh_the_same() -> None:
    assert weights(voices({"a": 8, "b": 2, "c": 2, "d": 1}), **CAPS) == pytest.approx([1 / 8, 1 / 2, 1 / 2, 1.0])


@pytest.mark.parametrize("sizes", [{}, {"a": 100}, {"a": 100, "b": 1}, {"a": 100, "b": 1, "c": 1}])
def test_with_fewer_users_no_cap_applies(sizes: dict[str, float]) -> None:
    assert weights(voices(sizes, new="a"), user=0.25, session=0.1, new_users=0.5) == [1.0] * len(sizes)


def test_without_a_loud_user_all_weights_are_one() -> None:
    assert weights(voices({"a": 3, "b": 3, "c": 3, "d": 3, "e": 2}), **CAPS) == [1.0] * 5


def test_new_users_together_are_bounded() -> None:
    """Eight new names of 5 against four known users of 5: at most half, so each new one weighs 1/2."""
    known, new = {name: 5.0 for name in "abcd"}, {name: 5.0 for name in "stuvwxyz"}
    found = weights(voices(known | new, new="stuvwxyz"), user=0.25, session=1.0, new_users=0.5)
    assert found == pytest.approx([1.0] * 4 + [0.5] * 8)


def test_if_all_or_none_are_new_the_bound_on_new_users_does_not_apply() -> None:
    sizes = {name: 5.0 for name in "abcdef"}
    for new in ("", "abcdef"):
        assert weights(voices(sizes, new=new), user=0.25, session=1.0, new_users=0.1) == [1.0] * 6


def test_a_long_session_is_brought_down_within_its_user() -> None:
    crowd = [Voice(name, f"{name}{i}", 1.0) for name in "abcd" for i in range(4)]
    crowd[0] = Voice("a", "a0", 9.0)
    found = weights(crowd, user=1.0, session=0.1, new_users=1.0)
    assert found == pytest.approx([(15 / 0.9 - 15) / 9] + [1.0] * 15)


@st.composite
def crowds(draw: st.DrawFn) -> list[Voice]:
    n_users = draw(st.integers(4, 12))
    new = draw(st.sets(st.integers(0, n_users - 1)))
    rows = [(user, 0) for user in range(n_users)]
    rows += draw(st.lists(st.tuples(st.integers(0, n_users - 1), st.integers(0, 3)), max_size=40))
    sizes = st.floats(1.0, 1000.0)
    return [Voice(user, (user, session), draw(sizes), user in new) for user, session in rows]


@settings(max_examples=150, deadline=None)
@given(crowds(), st.floats(0.25, 1.0), st.floats(0.05, 1.0), st.floats(0.1, 1.0))
def test_no_share_exceeds_its_cap(crowd: list[Voice], user: float, session: float, new_users: float) -> None:
    found = weights(crowd, user=user, session=session, new_users=new_users)
    assert all(0.0 < weight <= 1.0 for weight in found)
    by_user, new = shares(crowd, found, "user"), {voice.user for voice in crowd if voice.is_new}
    assert sum(by_user[name] for name in new) <= new_users + 1e-5 or len(new) == len(by_user)
    n_known = len(by_user) - len(new)
    bounded = new_users if new and n_known else 1.0
    for name, share in by_user.items():
        allowed = user if name in new or not n_known else max(user, (1.0 - bounded) / n_known)
        assert share <= allowed + 1e-5


@settings(max_examples=100, deadline=None)
@given(crowds())
def test_without_new_users_the_users_cap_holds_for_everyone(crowd: list[Voice]) -> None:
    for share in shares(crowd, weights(crowd, **CAPS), "user").values():
        assert share <= 0.25 + 1e-5


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1.0, 50.0), min_size=20, max_size=30), st.floats(1.0, 1e4))
def test_sessions_hold_their_cap_if_there_are_enough(sizes: list[float], loud: float) -> None:
    crowd = [Voice(i % 5, i, size) for i, size in enumerate([loud, *sizes])]
    by_session = shares(crowd, weights(crowd, user=0.25, session=0.1, new_users=1.0), "session")
    assert max(by_session.values()) <= 0.1 + 1e-5


@settings(max_examples=100, deadline=None)
@given(crowds(), st.floats(1.0, 100.0))
def test_more_rows_never_give_a_share_beyond_the_cap(crowd: list[Voice], factor: float) -> None:
    """Whatever factor user 0 multiplies its rows by, its share stays under the cap, and the order of rows does not
    matter.
    """
    louder = [Voice(v.user, v.session, v.size * factor, v.is_new) if v.user == 0 else v for v in crowd]
    found = weights(louder, user=0.25, session=1.0, new_users=1.0)
    assert shares(louder, found, "user")[0] <= 0.25 + 1e-5
    assert weights(louder[::-1], user=0.25, session=1.0, new_users=1.0)[::-1] == pytest.approx(found, abs=1e-6)


def test_rows_with_almost_no_weight_are_thinned_out() -> None:
    """100 rows of one user among three of 1: all four may have 1, so ten rows at 1/10 stay."""
    crowd = [Voice("a", i, 1.0) for i in range(100)] + [Voice(name, name, 1.0) for name in "bcd"]
    kept = thin(crowd, weights(crowd, **CAPS))
    assert kept == [True] * 10 + [False] * 90 + [True] * 3
    left = [voice for voice, keep in zip(crowd, kept, strict=True) if keep]
    assert weights(left, **CAPS) == pytest.approx([0.1] * 10 + [1.0] * 3)


@settings(max_examples=50, deadline=None)
@given(crowds())
def test_thinning_keeps_everyone_and_every_row_that_weighs_something(crowd: list[Voice]) -> None:
    found = weights(crowd, **CAPS)
    kept = thin(crowd, found)
    assert {v.user for v, keep in zip(crowd, kept, strict=True) if keep} == {v.user for v in crowd}
    if min(found) >= MIN_WEIGHT:
        assert all(kept)


def test_explicit_words_weigh_more_than_a_judges_where_users_are_capped() -> None:
    crowd = [Voice(name, None, 10.0, is_explicit=name == "a") for name in "abcd"]
    seen, trust = trusted(crowd, user=0.25)
    assert trust == [1.0, JUDGED, JUDGED, JUDGED] and [voice.size for voice in seen] == [10.0, 5.0, 5.0, 5.0]
    assert trusted(crowd[:3], user=0.25)[1] == [1.0] * 3  # too few users for caps
    silent = [replace(voice, is_explicit=None) for voice in crowd]
    assert trusted([*silent, *crowd[1:]], user=0.25)[1] == [1.0] * 7  # good replies of earlier steps, and shadow groups
    assert trusted(crowd[1:] * 2 + [Voice("e", None, 1.0, is_explicit=False)], user=0.25)[1] == [1.0] * 7  # all judged


def test_beside_proved_users_bare_keys_are_bounded_like_new_users() -> None:
    proved, keys = [Voice(name, None, 5.0) for name in "abcd"], [Voice(n, None, 5.0, is_proved=False) for n in range(8)]
    seen, _ = trusted(proved + keys, user=0.25)
    assert [voice.is_new for voice in seen] == [False] * 4 + [True] * 8
    found = weights(seen, user=0.25, session=1.0, new_users=0.5)
    assert found == pytest.approx([1.0] * 4 + [0.5] * 8)
    assert not any(voice.is_new for voice in trusted(keys, user=0.25)[0])
