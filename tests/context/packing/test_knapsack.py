"""The choice of the items with the highest value within a capacity."""

from itertools import combinations, product

from hypothesis import given, strategies as st

from llm_common.context.bundle import Form
from llm_common.context.packing.candidate import Candidate, Placed, candidates_of
from llm_common.context.packing.knapsack import KnapsackItem, choose, options_of
from llm_common.context.pool import DataPoolSnapshot
from tests.context.samples import even_scores, file

ITEMS = st.lists(st.builds(KnapsackItem, st.floats(0, 10), st.integers(0, 60), st.none()), max_size=9)
FORMS = st.tuples(st.floats(0, 10), st.integers(1, 60), st.floats(0.1, 0.9), st.integers(1, 59))


@given(items=ITEMS, room=st.integers(0, 200))
def test_a_choice_fits_and_is_nearly_the_best_of_all(items: list[KnapsackItem], room: int) -> None:
    chosen = choose(items, room)
    assert chosen == sorted(set(chosen))
    assert sum(items[position].size for position in chosen) <= room
    best = max(
        sum(item.value for item in some)
        for size in range(len(items) + 1)
        for some in combinations(items, size)
        if sum(item.size for item in some) <= room
    )
    assert sum(items[position].value for position in chosen) >= 0.99 * best


@given(forms=st.lists(FORMS, max_size=6), room=st.integers(0, 200))
def test_of_items_in_two_forms_the_choice_is_nearly_the_best_of_all(
    forms: list[tuple[float, int, float, int]], room: int
) -> None:
    items: list[KnapsackItem] = []
    choices: list[list[tuple[float, int]]] = []
    for value, size, share, part in forms:
        choices.append([(0.0, 0), (value, size)])
        if part < share * size:
            items += [KnapsackItem(value * share, part), KnapsackItem(value - value * share, size - part, len(items))]
            choices[-1].append((value * share, part))
        else:
            items.append(KnapsackItem(value, size))
    chosen = choose(items, room)
    assert all(items[position].after in (None, *chosen) for position in chosen)
    assert sum(items[position].size for position in chosen) <= room
    best = max(sum(value for value, _ in some) for some in product(*choices) if sum(size for _, size in some) <= room)
    assert sum(items[position].value for position in chosen) >= 0.99 * best


def test_two_that_fill_the_room_beat_the_densest_one() -> None:
    assert choose([KnapsackItem(6.1, 60), KnapsackItem(5.0, 50), KnapsackItem(5.0, 50)], 100) == [1, 2]


def test_what_is_one_too_large_for_the_rest_is_not_taken_s1_05() -> None:
    assert choose([KnapsackItem(6.0, 5), KnapsackItem(6.5, 6)], 10) == [1]


def test_an_item_without_value_still_fills_the_room() -> None:
    assert choose([KnapsackItem(0.0, 10), KnapsackItem(1.0, 10), KnapsackItem(0.0, 30)], 25) == [0, 1]


def test_of_equals_the_first_is_taken() -> None:
    assert choose([KnapsackItem(1.0, 10)] * 3, 20) == [0, 1]


def test_thousands_of_loads_are_chosen_from_within_the_room() -> None:
    items = [KnapsackItem((number * 7919 % 101) / 101, 5 + number * 31 % 90) for number in range(5_000)]
    chosen = choose(items, 4_000)
    used = sum(items[position].size for position in chosen)
    assert 3_995 <= used <= 4_000


POOL = DataPoolSnapshot(context_files=(file("a.py", "rain"), file("b.py", "wind")))
A, B = candidates_of(POOL, even_scores(POOL, 1.0), {}, None)


def placed(candidate: Candidate, form: Form, tokens: int) -> Placed:
    return Placed(candidate, candidate.block(""), "", form, tokens, "share")


def test_a_part_that_is_denser_comes_first_and_the_whole_adds_to_it() -> None:
    part, whole, other = placed(A, "passages", 10), placed(A, "whole", 100), placed(B, "whole", 50)
    options = options_of([whole, other], [part])
    assert [option.placed for option in options] == [part, whole, other]
    assert [option.item.size for option in options] == [10, 90, 50]
    assert [option.item.after for option in options] == [None, 0, None]
    assert sum(option.item.value for option in options[:2]) == 1.0


def test_a_part_that_is_no_denser_than_the_whole_is_no_option() -> None:
    whole = placed(A, "whole", 100)
    assert [option.placed for option in options_of([whole], [placed(A, "passages", 70)])] == [whole]


def test_a_part_of_what_is_too_large_stands_alone() -> None:
    assert [option.item for option in options_of([], [placed(A, "passages", 70)])] == [KnapsackItem(0.7, 70)]
