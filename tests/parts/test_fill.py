"""What fits a limit: never over it, and a larger limit never shows less."""

import pytest
from hypothesis import given, strategies as st

from llm_common.parts.fill import Lines, fill, largest_room

SIZES = st.lists(st.integers(0, 40), max_size=12)


def note_on_rest(taken: list[int], sizes: list[int]) -> int:
    """Characters of a line that says how many items are missing."""
    missing = len(sizes) - len(taken)
    return len(f"… {missing} more") if missing else 0


def filled(limit: int, sizes: list[int]) -> list[int]:
    return fill(
        limit,
        sizes,
        lambda item: item,
        part=lambda item, most: min(item, most) or None,
        whole=lambda taken: sum(taken) + note_on_rest([*taken], sizes),
    )


@given(SIZES, st.integers(0, 300))
def test_what_is_taken_never_exceeds_the_limit_t_19(sizes: list[int], limit: int) -> None:
    taken = filled(limit, sizes)
    assert not taken or sum(taken) + note_on_rest(taken, sizes) <= limit


@given(SIZES, st.integers(0, 300), st.integers(0, 100))
def test_a_larger_limit_never_shows_less_of_an_item_t_19(
    sizes: list[int], limit: int, more: int
) -> None:
    small, large = filled(limit, sizes), filled(limit + more, sizes)
    assert len(small) <= len(large)
    assert all(of_small <= of_large for of_small, of_large in zip(small, large, strict=False))


def test_items_behind_one_that_does_not_fit_are_left_out_t_19() -> None:
    assert fill(10, ["four", "much too long", "two"], len) == ["four"]
    assert [len(fill(limit, ["four", "four"], len)) for limit in (7, 8)] == [1, 2]


def test_items_are_read_only_as_far_as_they_fit_t_19() -> None:
    items = iter(["four"] * 9)
    assert fill(10, items, len) == ["four", "four"]
    assert len([*items]) == 6


def test_the_last_item_becomes_smaller_before_it_leaves_t_19() -> None:
    def part(item: str, most: int) -> str | None:
        return item[:most] or None

    taken = fill(10, ["four", "four"], len, part=part, whole=lambda all_: len("".join(all_)) + 4)
    assert taken == ["four", "fo"]
    taken = fill(5, ["four"], len, part=part, whole=lambda all_: len("".join(all_)) + 6)
    assert taken == []


@given(st.integers(1, 5_000), st.integers(0, 5_000), st.integers(0, 500), st.integers(64, 900))
def test_a_room_is_the_largest_to_a_thirty_second_and_grows_with_the_limit_t_19(
    most: int, limit: int, more: int, likely: int
) -> None:
    room = largest_room(most, lambda chars: chars <= limit, likely=likely)
    assert room <= min(most, limit)
    if limit >= 64:
        assert room >= min(most, limit) * 31 // 32 - 2
    assert largest_room(most, lambda chars: chars <= limit + more, likely=likely + more) >= room


@given(st.integers(1, 3_000), st.sets(st.integers(1, 3_000)), st.integers(1, 300))
def test_what_is_returned_was_seen_to_fit(most: int, unfit: set[int], likely: int) -> None:
    room = largest_room(most, lambda chars: chars not in unfit, likely=likely)
    assert 0 <= room <= most
    assert room not in unfit


def test_the_room_below_a_double_that_fits_may_not_fit() -> None:
    # A text in 126 characters can take more tokens than another one in 128.
    assert largest_room(1_000, lambda chars: chars <= 128 and chars != 126) == 123


@pytest.mark.parametrize("room", range(60))
def test_rows_say_how_many_are_missing_t_19(room: int) -> None:
    lines = Lines(room)
    count = lines.add_rows("head", ["# row", "a row", "last"], 5, noun="rows")
    shown = lines.text.split("\n") if lines.text else []
    assert len(lines.text) + bool(lines.text) <= room
    assert count == max(len(shown) - 2, 0)
    assert not shown or shown[-1] == f"… {5 - count} more rows"
