"""Contract suites of memories: what a `Memory` and a `FactMemory` must do, as pytest classes."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest

from llm_common.core.models import MessageRole
from llm_common.errors import InvalidIdError
from llm_common.memory import Event, FactMemory, Memory, MemoryFilters, UserMemory
from llm_common.memory.protocol import MAX_SUMMARY_CHARS, SUMMARISED_EVENTS, Scalar

_BAD_SESSION_IDS = ("", " ", "a\0b", "a\nb", "\ud800", "s" * 201)


class MemoryContract:
    """What a `Memory` promises.

    Inherit it in a test class whose async fixture `memory` gives a new, empty one.

    The queries are whole words of the text, which full-text search and substrings find alike.
    """

    async def test_gives_back_the_event_that_was_appended_s3_04_s3_05(self, memory: Memory) -> None:
        """Every field comes back unchanged."""
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
        metadata: dict[str, Scalar] = {
            "text": "x",
            "whole": 2**70,
            "part": 0.1,
            "flag": True,
            "none": None,
            "ключ": "значение",
        }
        texts = (
            "zebra",
            "zebra " * 5_000,
            "zebra \u2028 ☃ \U0001f600 'quoted' \"%s\" {schema}",
            "zebra\0\ud83d",
        )
        for number, text in enumerate(texts):
            event = Event(
                role=MessageRole.ASSISTANT, text=text, timestamp=moment, metadata=metadata
            )
            await memory.append_event(f"s{number}", event)
            [hit] = await memory.retrieve("zebra", 4, MemoryFilters(session_id=f"s{number}"))
            assert (hit.session_id, hit.event) == (f"s{number}", event)
            assert await memory.recent(f"s{number}") == [event]

    async def test_no_line_reaches_another_session_s3_04_f_145(self, memory: Memory) -> None:
        """Sessions whose ids look alike share nothing."""
        sessions = (
            "s",
            "S",
            "s ",
            "s1",
            "s%",
            "s_",
            "'; DROP TABLE events; --",
            's" OR words:"zebra',
            "sé",
            "se\u0301",
        )
        for session_id in sessions:
            await memory.append_event(session_id, Event(text=f"zebra of {session_id}"))
        for session_id in sessions:
            hits = await memory.retrieve("zebra", 100, MemoryFilters(session_id=session_id))
            assert [hit.event.text for hit in hits] == [f"zebra of {session_id}"]
            assert (
                await memory.summarize_episode(session_id) == f"user: zebra of {session_id}".strip()
            )
            assert len(await memory.recent(session_id)) == 1

    @pytest.mark.parametrize(
        "query", ["", " \n", "\0", "the", "?!", "unheard", '"', 'zebra" OR words:"lion']
    )
    async def test_finds_nothing_without_a_word_to_find_s3_04_f_146(
        self, memory: Memory, query: str
    ) -> None:
        """A blank query, marks alone, or words that no event holds.

        Nothing in a query is syntax.
        """
        await memory.append_event("s", Event(text="a lion"))
        found = await memory.retrieve(query, 4, MemoryFilters(session_id="s"))
        assert [hit.event.text for hit in found] == (["a lion"] if "lion" in query else [])

    @pytest.mark.parametrize(("k", "hits"), [(-1, 0), (0, 0), (1, 1), (4, 4), (1_000, 6)])
    async def test_finds_at_most_k_s3_04(self, memory: Memory, k: int, hits: int) -> None:
        """`k` is a ceiling, and 0 or less asks for nothing."""
        for number in range(6):
            await memory.append_event("s", Event(text=f"zebra number {number}"))
        assert len(await memory.retrieve("zebra", k, MemoryFilters(session_id="s"))) == hits

    async def test_an_unknown_session_is_empty_s3_04(self, memory: Memory) -> None:
        """No hits, no summary, no events, no error."""
        assert await memory.retrieve("zebra", 4, MemoryFilters(session_id="none")) == []
        assert await memory.summarize_episode("none") is None
        assert await memory.recent("none") == []

    async def test_a_line_with_more_and_rarer_words_stands_first_s3_05(
        self, memory: Memory
    ) -> None:
        """Relevance first, at any distance, and only lines that share a word."""
        await memory.append_event("s", Event(text="the zebra escaped from its enclosure at noon"))
        for number in range(50):
            await memory.append_event("s", Event(text=f"report {number}: the enclosure is clean"))
        await memory.append_event("s", Event(text="lunch"))
        hits = await memory.retrieve(
            "When did the zebra leave the enclosure?", 4, MemoryFilters(session_id="s")
        )
        assert "zebra" in hits[0].event.text
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert all("enclosure" in hit.event.text for hit in hits)

    async def test_between_equals_the_newer_line_stands_first_s3_05(self, memory: Memory) -> None:
        """Order of appending counts, not the timestamps, which callers may invent."""
        for number in range(300):
            moment = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=number)
            await memory.append_event(
                "s", Event(text="the same zebra", timestamp=moment, metadata={"number": number})
            )
        hits = await memory.retrieve("zebra", 3, MemoryFilters(session_id="s"))
        assert {hit.event.metadata["number"] for hit in hits} <= set(range(297, 300))

    async def test_an_old_line_is_found_behind_many_common_ones_s3_05(self, memory: Memory) -> None:
        """Common words are looked up in the newest lines only, a rare word in all of them."""
        await memory.append_event("s", Event(text="the password of the zebra project is swordfish"))
        for number in range(500):
            await memory.append_event("s", Event(text=f"project meeting {number}"))
        [hit] = await memory.retrieve("zebra project", 1, MemoryFilters(session_id="s"))
        assert "swordfish" in hit.event.text

    async def test_identifiers_and_other_scripts_are_found_by_their_parts_s3_05(
        self, memory: Memory
    ) -> None:
        """`getUserName` answers to `user`; Chinese needs no spaces; case does not count."""
        for text in ("call getUserName there", "我们明天开会", "STRASSE und Öl"):
            await memory.append_event("s", Event(text=text))
        for query, text in (
            ("user", "getUserName"),
            ("开会", "开会"),
            ("strasse", "STRASSE"),
            ("öl", "Öl"),
        ):
            [hit] = await memory.retrieve(query, 4, MemoryFilters(session_id="s"))
            assert text in hit.event.text

    async def test_filters_leave_only_what_agrees_with_all_s3_04(self, memory: Memory) -> None:
        """Role and metadata filter before the best are taken.

        `1`, `1.0`, `True` and `"1"` differ.
        """
        values = (1, 1.0, True, "1", None)
        for number in range(250):
            await memory.append_event("s", Event(text="zebra", metadata={"n": number}))
        for value in values:
            await memory.append_event(
                "s", Event(role=MessageRole.TOOL, text="zebra", metadata={"v": value, "x": "y"})
            )
        for value in values:
            filters = MemoryFilters(session_id="s", role=MessageRole.TOOL, metadata={"v": value})
            [hit] = await memory.retrieve("zebra", 4, filters)
            assert hit.event.metadata["v"] is value or hit.event.metadata["v"] == value
            assert type(hit.event.metadata["v"]) is type(value)
        [old] = await memory.retrieve("zebra", 4, MemoryFilters(session_id="s", metadata={"n": 0}))
        assert old.event.metadata == {"n": 0}
        others: list[dict[str, Scalar]] = [{"v": 1, "x": "z"}, {"v": 2}, {"w": None}]
        for none in others:
            assert not await memory.retrieve(
                "zebra", 4, MemoryFilters(session_id="s", metadata=none)
            )
        assert not await memory.retrieve(
            "zebra", 4, MemoryFilters(session_id="other", role=MessageRole.TOOL)
        )

    async def test_summarises_the_newest_events_in_a_bounded_text_s3_04(
        self, memory: Memory
    ) -> None:
        """Role and first sentence of each, oldest first, at most 1,200 characters."""
        for number in range(60):
            await memory.append_event(
                "s", Event(text=f"Step {number} is done. {'And so on. ' * 200}")
            )
        await memory.append_event(
            "s", Event(role=MessageRole.ASSISTANT, text="All is done\nReally.")
        )
        summary = await memory.summarize_episode("s") or ""
        lines = summary.split("\n")
        assert lines[-2:] == ["user: Step 59 is done.", "assistant: All is done"]
        assert len(lines) == SUMMARISED_EVENTS
        assert len(summary) <= MAX_SUMMARY_CHARS
        assert summary == await memory.summarize_episode("s")

    async def test_recent_events_come_oldest_first_s3_06(self, memory: Memory) -> None:
        """The newest `limit` events, in the order in which they were appended."""
        for number in range(30):
            role = MessageRole.ASSISTANT if number % 2 else MessageRole.USER
            await memory.append_event("s", Event(role=role, text=str(number)))
        assert [event.text for event in await memory.recent("s", limit=3)] == ["27", "28", "29"]
        assert [event.role for event in await memory.recent("s", limit=2)] == ["user", "assistant"]
        assert len(await memory.recent("s", limit=100)) == len(range(30))
        assert await memory.recent("s", limit=0) == await memory.recent("s", limit=-1) == []

    async def test_concurrent_appends_lose_nothing_s3_05(self, memory: Memory) -> None:
        """Appends to one session from many tasks, with searches in between."""
        filters = MemoryFilters(session_id="s")
        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(memory.append_event("s", Event(text=f"zebra number{number:03}")))
                tasks.create_task(memory.retrieve("zebra", 4, filters))
        events = await memory.recent("s", limit=1_000)
        assert sorted(event.text for event in events) == sorted(
            f"zebra number{number:03}" for number in range(100)
        )
        for number in range(0, 100, 9):
            [hit] = await memory.retrieve(f"number{number:03}", 1, filters)
            assert hit.event.text.endswith(f"number{number:03}")

    async def test_what_a_caller_does_to_events_changes_nothing_inside_s3_04(
        self, memory: Memory
    ) -> None:
        """Events go in and come out as copies."""
        given = Event(text="zebra", metadata={"n": 1})
        await memory.append_event("s", given)
        given.metadata["n"] = 2
        [hit] = await memory.retrieve("zebra", 1, MemoryFilters(session_id="s"))
        hit.event.metadata["n"] = 3
        [event] = await memory.recent("s")
        assert event.metadata == {"n": 1}

    async def test_ids_of_one_hash_prefix_are_two_sessions_s3_04_f_145(
        self, memory: Memory
    ) -> None:
        """The SHA-256 of both ids begins with the same 12 digits, a prefix an index may use."""
        for session_id, texts in {
            "s5294434": ("rain", "zebra"),
            "s34989017": ("rain", "lion"),
        }.items():
            for text in texts:
                await memory.append_event(session_id, Event(text=text))
        assert await memory.retrieve("zebra", 4, MemoryFilters(session_id="s34989017")) == []
        [hit] = await memory.retrieve("zebra", 4, MemoryFilters(session_id="s5294434"))
        assert hit.event.text == "zebra"

    async def test_takes_a_session_id_of_200_characters_s3_04(self, memory: Memory) -> None:
        """The longest that is allowed."""
        await memory.append_event("é" * 200, Event(text="zebra"))
        assert len(await memory.retrieve("zebra", 4, MemoryFilters(session_id="é" * 200))) == 1

    @pytest.mark.parametrize("session_id", _BAD_SESSION_IDS)
    async def test_refuses_session_ids_outside_the_rules_s3_04(
        self, memory: Memory, session_id: str
    ) -> None:
        """Every method checks."""
        with pytest.raises(InvalidIdError):
            await memory.append_event(session_id, Event(text="x"))
        with pytest.raises(InvalidIdError):
            await memory.summarize_episode(session_id)
        with pytest.raises(InvalidIdError):
            await memory.recent(session_id)
        with pytest.raises(InvalidIdError):
            await memory.retrieve("x", 4, MemoryFilters(session_id=session_id))

    async def test_arguments_of_another_kind_are_type_errors_s3_04_u_b17(
        self, memory: Memory
    ) -> None:
        """Each says what to pass; nothing is kept."""
        wrong: Any = None
        with pytest.raises(TypeError, match="event must be an Event, got str; pass Event"):
            await memory.append_event("s", cast("Event", "hello"))
        with pytest.raises(TypeError, match="filters must be MemoryFilters, got NoneType; pass"):
            await memory.retrieve("x", 4, wrong)
        with pytest.raises(TypeError, match="query must be a str, got NoneType"):
            await memory.retrieve(wrong, 4, MemoryFilters(session_id="s"))
        with pytest.raises(TypeError, match="k must be an int, got NoneType"):
            await memory.retrieve("x", wrong, MemoryFilters(session_id="s"))
        with pytest.raises(TypeError, match="limit must be an int, got NoneType"):
            await memory.recent("s", limit=wrong)
        with pytest.raises(InvalidIdError, match="the session id None is not allowed"):
            await memory.recent(wrong)
        assert await memory.recent("s") == []

    async def test_closing_twice_is_no_error_s3_05(self, memory: Memory) -> None:
        """`aclose` is idempotent, also after an `async with` block."""
        async with memory:
            await memory.append_event("s", Event(text="zebra"))
        await memory.aclose()
        await memory.aclose()


_USERS = (
    None,
    "a",
    "A",
    "a ",
    "s",
    "%",
    "'; DROP TABLE events; --",
    "\u00e9",
    "e\u0301",
    "u" * 200,
)
_SESSIONS = ("s", "a", "%", 's" OR words:"zebra')


class FactMemoryContract(MemoryContract):
    """What a `FactMemory` promises beside; its fixture `memory` gives one."""

    async def test_an_event_has_an_id_which_its_hit_shows_s3_04(self, memory: FactMemory) -> None:
        """Ids are texts and all differ."""
        ids = [
            await memory.append_event(session, Event(text=f"zebra of {session}"))
            for session in ("s", "t")
        ]
        hits = [
            await memory.retrieve("zebra", 4, MemoryFilters(session_id=session))
            for session in ("s", "t")
        ]
        assert [[hit.id for hit in found] for found in hits] == [[one] for one in ids]
        assert len(set(ids)) == len(ids)
        assert all(ids)

    async def test_the_newest_fact_under_a_key_hides_the_older_ones_s3_04(
        self, memory: FactMemory
    ) -> None:
        """In searches, recent events and summaries, unless the history is asked for.

        Other scopes keep theirs.
        """
        await memory.append_event(
            "other", Event(text="zebra street of another session"), key="address"
        )
        for street in ("first", "second", "third"):
            await memory.append_event(
                "s", Event(text=f"zebra street: zebra zebra {street}"), key="address"
            )
        await memory.append_event("s", Event(text="the fourth"), key="address")
        await memory.append_event("s", Event(text="zebra crossing"), key="crossing")
        await memory.append_event("s", Event(text="street with a zebra"))
        here = MemoryFilters(session_id="s")
        assert {
            hit.event.text for hit in await memory.retrieve("zebra street fourth", 9, here)
        } == {*("the fourth", "zebra crossing", "street with a zebra")}
        assert (await memory.recent("s"))[0].text == "the fourth"
        assert "first" not in (await memory.summarize_episode("s") or "")
        past = await memory.retrieve(
            "zebra street fourth", 9, here.model_copy(update={"history": True})
        )
        assert [hit.current for hit in past] == [True] * 3 + [False] * 3
        assert [event.text[-6:] for event in await memory.recent("s", history=True)][:3] == [
            " first",
            "second",
            " third",
        ]
        only = MemoryFilters(session_id="s", key="address", history=True)
        assert [
            (hit.event.text, hit.key) for hit in await memory.retrieve("zebra fourth", 1, only)
        ] == [("the fourth", "address")]
        assert len(await memory.retrieve("zebra", 9, MemoryFilters(session_id="other"))) == 1

    async def test_words_of_an_older_fact_find_the_newest_s3_05(self, memory: FactMemory) -> None:
        """Within the filters, and unless it expired or was forgotten.

        A fact may change by key and by id.
        """
        first = await memory.append_event(
            "s", Event(text="I live in zebra town"), user="u", key="home"
        )
        await memory.append_event("s", Event(text="now lion town"), user="u", key="home")
        last = await memory.append_event("t", Event(text="a village"), user="u", supersedes=first)
        here = MemoryFilters(session_id="s", user="u")
        wanted: dict[str, list[dict[str, Any]]] = {
            "a village": [{"all_sessions": True}],
            "": [{}, {"all_sessions": True, "key": "home"}, {"all_sessions": True, "role": "user"}],
        }
        for text, updates in wanted.items():
            for update in updates:
                hits = await memory.retrieve("zebra", 9, here.model_copy(update=update))
                assert [hit.event.text for hit in hits] == [text][: bool(text)]
        ever = await memory.retrieve(
            "zebra", 9, MemoryFilters(session_id="s", user="u", all_sessions=True, history=True)
        )
        assert [hit.event.text for hit in ever] == ["a village", "I live in zebra town"]
        past = datetime.now(UTC) - timedelta(hours=1)
        await memory.append_event(
            "s", Event(text="gone"), user="u", supersedes=last, valid_until=past
        )
        assert (
            await memory.retrieve("zebra", 9, here.model_copy(update={"all_sessions": True})) == []
        )
        await memory.append_event("s", Event(text="a hut"), user="u", key="home", supersedes=first)
        [hit] = await memory.retrieve("zebra village", 9, here)
        assert hit.event.text == "a hut"
        assert await memory.forget(id=hit.id) == 1
        assert await memory.retrieve("zebra village hut", 9, here) == []

    async def test_a_fact_of_a_user_is_one_in_all_sessions_s3_04(self, memory: FactMemory) -> None:
        """The scope of a key is the user."""
        await memory.append_event("s", Event(text="zebra one"), user="u", key="k")
        await memory.append_event("t", Event(text="zebra two"), user="u", key="k")
        await memory.append_event("s", Event(text="zebra of v"), user="v", key="k")
        for session_id, texts in (("s", []), ("t", ["zebra two"])):
            hits = await memory.retrieve("zebra", 9, MemoryFilters(session_id=session_id, user="u"))
            assert [hit.event.text for hit in hits] == texts
        everywhere = MemoryFilters(session_id="new", user="u", all_sessions=True)
        [hit] = await memory.retrieve("zebra", 9, everywhere)
        assert (hit.session_id, hit.event.text) == ("t", "zebra two")
        past = await memory.retrieve("zebra", 9, everywhere.model_copy(update={"history": True}))
        assert [hit.event.text for hit in past] == ["zebra two", "zebra one"]

    async def test_an_event_supersedes_the_one_it_names_s3_04(self, memory: FactMemory) -> None:
        """By its id, in its scope alone; another id is refused and nothing is kept."""
        old = await memory.append_event("s", Event(text="zebra one"))
        theirs = await memory.append_event("s", Event(text="zebra of u"), user="u")
        new = await memory.append_event("s", Event(text="zebra two"), supersedes=old)
        [hit] = await memory.retrieve("zebra", 9, MemoryFilters(session_id="s"))
        assert hit.id == new
        for wrong in (theirs, "", "0", "-1", f"0{new}", "9" * 40, "x' OR 1 --", "\u0663"):
            with pytest.raises(InvalidIdError, match="supersedes must be the id of an event"):
                await memory.append_event("s", Event(text="zebra three"), supersedes=wrong)
        assert [event.text for event in await memory.recent("s")] == ["zebra two"]
        assert len(await memory.recent("s", user="u")) == 1

    async def test_an_expired_event_is_not_found_s3_04(self, memory: FactMemory) -> None:
        """A time without a zone is UTC; history holds it still."""
        now = datetime.now(UTC)
        for hours in (-1, 1):
            for number, zone in enumerate((None, UTC, timezone(timedelta(hours=9)))):
                moment = now + timedelta(hours=hours)
                until = moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)
                await memory.append_event(
                    "s", Event(text=f"zebra {hours} {number}"), valid_until=until
                )
        await memory.append_event(
            "s", Event(text="zebra for good"), valid_until=datetime.max.replace(tzinfo=UTC)
        )
        wanted = ["zebra 1 0", "zebra 1 1", "zebra 1 2", "zebra for good"]
        here = MemoryFilters(session_id="s")
        assert sorted(hit.event.text for hit in await memory.retrieve("zebra", 9, here)) == wanted
        assert [event.text for event in await memory.recent("s")] == wanted
        assert "-1" not in (await memory.summarize_episode("s") or "")
        past = await memory.retrieve("zebra", 9, here.model_copy(update={"history": True}))
        assert [hit.current for hit in past] == [True] * 4 + [False] * 3

    async def test_an_echo_is_kept_once_s3_04(self, memory: FactMemory) -> None:
        """Not again after an answer, with other metadata, key or end, or once superseded."""
        later = datetime.now(UTC) + timedelta(hours=1)
        facts: list[dict[str, Any]] = [
            {},
            {"key": "k"},
            {"key": "k", "valid_until": later},
            {"valid_until": later},
        ]
        question, answer = Event(text="zebra?"), Event(role=MessageRole.ASSISTANT, text="zebra?")
        first = await memory.append_event("s", question)
        await memory.append_event(
            "s", Event(role=MessageRole.TOOL, text="zebra rows", metadata={"a": 1, "b": 2})
        )
        await memory.append_event(
            "s", Event(role=MessageRole.TOOL, text="zebra rows", metadata={"b": 2, "a": 1})
        )
        assert await memory.append_event("s", question) == first
        assert (
            await memory.append_event("s", answer)
            == await memory.append_event("s", answer)
            != first
        )
        assert await memory.append_event("s", question) != first
        assert [event.text for event in await memory.recent("s")] == [
            "zebra?",
            "zebra rows",
            "zebra?",
            "zebra?",
        ]
        for index, fact in enumerate(facts):
            event = Event(text="zebra.")
            kept = await memory.append_event(f"t{index}", event, **fact)
            assert await memory.append_event(f"t{index}", event, **fact) == kept
            assert await memory.append_event(f"t{index}", event, **facts[index - 1]) != kept
        for text in ("zebra 1", "zebra 2", "zebra 1"):
            await memory.append_event("u", Event(text=text), key="k")
        assert [event.text for event in await memory.recent("u", history=True)] == [
            "zebra 1",
            "zebra 2",
            "zebra 1",
        ]
        assert [event.text for event in await memory.recent("u")] == ["zebra 1"]

    async def test_no_user_ever_meets_another_s3_04(self, memory: FactMemory) -> None:
        """Users and sessions whose ids look alike, in every combination and by every method."""
        pairs = [(user, session_id) for user in _USERS for session_id in _SESSIONS]
        texts = {pair: f"zebra number{index:03}" for index, pair in enumerate(pairs)}
        for (user, session_id), text in texts.items():
            await memory.append_event(
                session_id, Event(text=text), user=user, key="k" if user is None else session_id
            )
        for (user, session_id), text in texts.items():
            found = await memory.retrieve(
                "zebra", 99, MemoryFilters(session_id=session_id, user=user)
            )
            assert [(hit.session_id, hit.event.text) for hit in found] == [(session_id, text)]
            assert [event.text for event in await memory.recent(session_id, user=user)] == [text]
            assert await memory.summarize_episode(session_id, user=user) == f"user: {text}"
        for user in _USERS[1:]:
            filters = MemoryFilters(session_id="none", user=user, all_sessions=True)
            found = await memory.retrieve("zebra", 99, filters)
            assert {hit.event.text for hit in found} == {
                texts[user, session_id] for session_id in _SESSIONS
            }
            assert not await memory.retrieve(
                "zebra", 99, MemoryFilters(session_id="none", user=user)
            )
        mine = UserMemory(memory, "a")
        for filters in (MemoryFilters(session_id="s", user="A"), MemoryFilters(session_id="s")):
            assert [hit.event.text for hit in await mine.retrieve("zebra", 99, filters)] == [
                texts["a", "s"]
            ]

    async def test_users_of_one_hash_prefix_are_two_s3_04_f_145(self, memory: FactMemory) -> None:
        """The SHA-256 of both scopes begins with the same 12 digits, a prefix an index may use."""
        for user, texts in {"u6714372": ("rain", "zebra"), "u18455147": ("rain", "lion")}.items():
            for text in texts:
                await memory.append_event("s", Event(text=text), user=user)
        filters = MemoryFilters(session_id="none", user="u18455147", all_sessions=True)
        assert await memory.retrieve("zebra", 4, filters) == []
        [hit] = await memory.retrieve("zebra", 4, filters.model_copy(update={"user": "u6714372"}))
        assert hit.event.text == "zebra"

    async def test_forgets_a_session_a_user_or_an_event_s3_04(self, memory: FactMemory) -> None:
        """Says how many were erased; the rest stays, and no id comes back."""
        ids = {}
        for user in (None, "u", "v"):
            for session_id in ("s", "t"):
                for number in range(3):
                    event = Event(text=f"zebra {number} of {user}")
                    ids[user, session_id, number] = await memory.append_event(
                        session_id, event, user=user
                    )
        mine = UserMemory(memory, "u")
        assert await memory.forget(id="no id") == await memory.forget(session_id="none") == 0
        assert await mine.forget(id=ids["v", "s", 0]) == await memory.forget(user="s") == 0
        assert await memory.forget(session_id="t", user="u", id=ids["u", "s", 0]) == 0
        erased = [
            await memory.forget(session_id="s"),
            await memory.forget(id=ids["v", "t", 2]),
            await memory.forget(session_id="s", user="v"),
        ]
        assert erased == [3, 1, 3]
        for user, session_id, texts in (
            (None, "s", ""),
            (None, "t", "012"),
            ("v", "s", ""),
            ("v", "t", "01"),
        ):
            filters = MemoryFilters(session_id=session_id, user=user)
            assert sorted(
                hit.event.text[6] for hit in await memory.retrieve("zebra", 9, filters)
            ) == list(texts)
            assert [event.text[6] for event in await memory.recent(session_id, user=user)] == list(
                texts
            )
        assert [await mine.forget(session_id="s"), await mine.forget(), await mine.forget()] == [
            3,
            3,
            0,
        ]
        assert await mine.recent("t") == []
        again = await memory.append_event("t", Event(text="zebra giraffe"), user="v")
        assert again not in ids.values()
        assert (await memory.retrieve("zebra giraffe", 9, MemoryFilters(session_id="t", user="v")))[
            0
        ].id == again

    async def test_a_fact_that_was_superseded_stays_history_s3_04(self, memory: FactMemory) -> None:
        """Also when the newer one is forgotten."""
        await memory.append_event("s", Event(text="zebra one"), key="k")
        newer = await memory.append_event("s", Event(text="zebra two"), key="k")
        assert await memory.forget(id=newer) == 1
        assert await memory.retrieve("zebra", 9, MemoryFilters(session_id="s")) == []
        assert len(await memory.recent("s", history=True)) == 1

    async def test_of_concurrent_facts_under_a_key_one_is_current_s3_04(
        self, memory: FactMemory
    ) -> None:
        """The newest; the others are history, and echoes are kept once."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(
                    memory.append_event("s", Event(text=f"zebra {number // 2}"), user="u", key="k")
                )
                tasks.create_task(memory.append_event("t", Event(text="zebra"), user="u"))
        events = await memory.recent("s", user="u", history=True)
        assert await memory.recent("s", user="u") == events[-1:]
        assert len(await memory.recent("t", user="u")) == 1

    async def test_facts_of_another_kind_are_refused_s3_04(self, memory: FactMemory) -> None:
        """Each error says what to pass; nothing is kept or erased."""
        event, wrong = Event(text="zebra"), cast("Any", 5)
        for bad in ("", " ", "a\nb", "\x1fu", "u" * 201):
            for fact in ("user", "key"):
                with pytest.raises(
                    InvalidIdError, match=f"the {fact} .* is not allowed; use 1 to 200 printable"
                ):
                    await memory.append_event("s", event, **cast("Any", {fact: bad}))
            with pytest.raises(InvalidIdError, match="the user "):
                await memory.recent("s", user=bad)
            with pytest.raises(InvalidIdError, match="the user "):
                await memory.retrieve("zebra", 4, MemoryFilters(session_id="s", user=bad))
            with pytest.raises(InvalidIdError, match="the user "):
                await memory.forget(user=bad)
        with pytest.raises(InvalidIdError, match="all_sessions needs a user"):
            await memory.retrieve("zebra", 4, MemoryFilters(session_id="s", all_sessions=True))
        with pytest.raises(TypeError, match="valid_until must be a datetime, got int"):
            await memory.append_event("s", event, valid_until=wrong)
        with pytest.raises(TypeError, match="supersedes must be a str, got int; pass an id"):
            await memory.append_event("s", event, supersedes=wrong)
        with pytest.raises(TypeError, match="id must be a str, got int; pass an id"):
            await memory.forget(id=wrong)
        with pytest.raises(TypeError, match="forget needs session_id, user or id"):
            await memory.forget()
        assert await memory.recent("s") == []
