"""The choice of what is worth most in a room."""

from itertools import combinations, product

from hypothesis import given, strategies as st

from llm_common.context.packing.knapsack import Load, choose

LOADS = st.lists(st.builds(Load, st.floats(0, 10), st.integers(0, 60), st.none()), max_size=9)
FORMS = st.tuples(st.floats(0, 10), st.integers(1, 60), st.floats(0.1, 0.9), st.integers(1, 59))


@given(loads=LOADS, room=st.integers(0, 200))
def test_a_choice_fits_and_is_nearly_the_best_of_all(loads: list[Load], room: int) -> None:
    chosen = choose(loads, room)
    assert chosen == sorted(set(chosen))
    assert sum(loads[position].size for position in chosen) <= room
    best = max(
        sum(load.worth for load in some)
        for size in range(len(loads) + 1)
        for some in combinations(loads, size)
        if sum(load.size for load in some) <= room
    )
    assert sum(loads[position].worth for position in chosen) >= 0.99 * best


@given(items=st.lists(FORMS, max_size=6), room=st.integers(0, 200))
def test_of_items_in_two_forms_the_choice_is_nearly_the_best_of_all(
    items: list[tuple[float, int, float, int]], room: int
) -> None:
    loads: list[Load] = []
    forms: list[list[tuple[float, int]]] = []
    for worth, size, share, part in items:
        forms.append([(0.0, 0), (worth, size)])
        if part < share * size:
            loads += [Load(worth * share, part), Load(worth - worth * share, size - part, len(loads))]
            forms[-1].append((worth * share, part))
        else:
            loads.append(Load(worth, size))
    chosen = choose(loads, room)
    assert all(loads[position].after in (None, *chosen) for position in chosen)
    assert sum(loads[position].size for position in chosen) <= room
    best = max(sum(worth for worth, _ in some) for some in product(*forms) if sum(size for _, size in some) <= room)
    assert sum(loads[position].worth for position in chosen) >= 0.99 * best


def test_two_that_fill_the_room_beat_the_densest_one() -> None:
    assert choose([Load(6.1, 60), Load(5.0, 50), Load(5.0, 50)], 100) == [1, 2]


def test_what_is_worth_nothing_still_fills_the_room() -> None:
    assert choose([Load(0.0, 10), Load(1.0, 10), Load(0.0, 30)], 25) == [0, 1]


def test_of_equals_the_first_is_taken() -> None:
    assert choose([Load(1.0, 10)] * 3, 20) == [0, 1]


def test_thousands_of_loads_are_chosen_from_within_the_room() -> None:
    loads = [Load((number * 7919 % 101) / 101, 5 + number * 31 % 90) for number in range(5_000)]
    chosen = choose(loads, 4_000)
    used = sum(loads[position].size for position in chosen)
    assert 3_995 <= used <= 4_000
