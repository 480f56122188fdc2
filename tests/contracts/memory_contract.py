"""Contract suites for memories: pytest classes that test a `Memory` or a `FactMemory`."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from llm_common.core import MessageRole
from llm_common.errors import InvalidIdError
from llm_common.memory import Event, FactMemory, Memory, MemoryFilters, MemoryHit, UserMemory

Scalar = str | bool | int | float | None

# What `episode_summary` promises.
_SUMMARISED_EVENTS = 20
_MAX_SUMMARY_CHARS = 1_200

_BAD_SESSION_IDS = ("", " ", "a\0b", "a\nb", "\ud800", "s" * 201)


class MemoryContract:
    """The tests of a `Memory`.

    Inherit from it in a test class with an async fixture `memory` that returns a new, empty memory.
    Queries are whole words of the text, because some memories search words and others substrings.
    """

    async def test_gives_back_the_event_that_was_appended_s3_04_s3_05(self, memory: Memory) -> None:
        """Check that every field comes back unchanged."""
        # Databases may round to milliseconds, and convert to another zone.
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
        metadata: dict[str, Scalar] = {
            "text": "x",
            "whole": 2**70,  # SQLite and orjson have integers of at most 64 bits
            "part": 0.1,
            "flag": True,
            "none": None,
            "ключ": "значение",
        }
        texts = (
            "zebra",
            "zebra " * 5_000,
            "zebra \u2028 ☃ \U0001f600 'quoted' \"%s\" {schema}",
            "zebra\0\ud83d",  # PostgreSQL refuses NUL, and UTF-8 a lone surrogate
        )
        for index, text in enumerate(texts):
            event = Event(
                role=MessageRole.ASSISTANT, text=text, timestamp=moment, metadata=metadata
            )
            await memory.append_event(f"s{index}", event)
            [hit] = await memory.retrieve("zebra", 4, MemoryFilters(session_id=f"s{index}"))
            assert (hit.session_id, hit.event) == (f"s{index}", event)
            assert await memory.recent(f"s{index}") == [event]

    async def test_no_line_reaches_another_session_s3_04_f_145(self, memory: Memory) -> None:
        """Keep sessions with similar ids apart."""
        # Ids that a database could confuse: by case, padding, wildcards, quotes or normal form.
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
            await _append(memory, session_id, f"zebra of {session_id}")
        for session_id in sessions:
            assert await _texts_found(memory, "zebra", session_id) == [f"zebra of {session_id}"]
            assert (
                # A summary has no space at its end, but the id `s ` has one.
                await memory.summarize_episode(session_id) == f"user: zebra of {session_id}".strip()
            )
            assert len(await memory.recent(session_id)) == 1

    @pytest.mark.parametrize(
        "query", ["", " \n", "\0", "the", "?!", "unheard", '"', 'zebra" OR words:"lion']
    )
    async def test_finds_nothing_without_a_word_to_find_s3_04_f_146(
        self, memory: Memory, query: str
    ) -> None:
        """Return nothing for a query without words, or with words of no event.

        Operators of a search syntax have no effect.
        """
        await _append(memory, "s", "a lion")
        found = await _texts_found(memory, query, "s")
        assert found == (["a lion"] if "lion" in query else [])

    @pytest.mark.parametrize(("k", "hits"), [(-1, 0), (0, 0), (1, 1), (4, 4), (1_000, 6)])
    async def test_finds_at_most_k_s3_04(self, memory: Memory, k: int, hits: int) -> None:
        """Return at most `k` hits, and none if `k` is 0 or less."""
        await _append(memory, "s", *(f"zebra number {index}" for index in range(6)))
        assert len(await memory.retrieve("zebra", k, MemoryFilters(session_id="s"))) == hits

    async def test_an_unknown_session_is_empty_s3_04(self, memory: Memory) -> None:
        """Return no hits, no summary and no events, and raise no error."""
        assert await memory.retrieve("zebra", 4, MemoryFilters(session_id="none")) == []
        assert await memory.summarize_episode("none") is None
        assert await memory.recent("none") == []

    async def test_an_event_with_more_and_rarer_words_is_first_s3_05(self, memory: Memory) -> None:
        """Rank by relevance, however old an event is, and return only events that share a word."""
        reports = [f"report {index}: the enclosure is clean" for index in range(50)]
        await _append(memory, "s", "the zebra escaped from its enclosure at noon", *reports)
        # An event without a word of the question, which must not fill the hits.
        await _append(memory, "s", "lunch")
        hits = await memory.retrieve(
            "When did the zebra leave the enclosure?", 4, MemoryFilters(session_id="s")
        )
        assert "zebra" in hits[0].event.text
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert all("enclosure" in text for text in _hit_texts(hits))

    async def test_the_newer_of_two_equal_events_is_first_s3_05(self, memory: Memory) -> None:
        """Use the order of appending, not the timestamps, which callers may invent."""
        for index in range(300):
            moment = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=index)
            await memory.append_event(
                "s", Event(text="the same zebra", timestamp=moment, metadata={"number": index})
            )
        hits = await memory.retrieve("zebra", 3, MemoryFilters(session_id="s"))
        assert {hit.event.metadata["number"] for hit in hits} <= set(range(297, 300))

    async def test_an_old_event_is_found_behind_many_similar_ones_s3_05(
        self, memory: Memory
    ) -> None:
        """Search all events for a rare word, even if common words search only the newest."""
        meetings = [f"project meeting {index}" for index in range(500)]
        await _append(memory, "s", "the password of the zebra project is swordfish", *meetings)
        [hit] = await memory.retrieve("zebra project", 1, MemoryFilters(session_id="s"))
        assert "swordfish" in hit.event.text

    async def test_identifiers_and_other_scripts_are_found_by_their_parts_s3_05(
        self, memory: Memory
    ) -> None:
        """Find `getUserName` by `user`, Chinese words without spaces, and words of any case."""
        words = {"user": "getUserName", "开会": "开会", "strasse": "STRASSE", "öl": "Öl"}
        await _append(memory, "s", "call getUserName there", "我们明天开会", "STRASSE und Öl")
        for query, text in words.items():
            [found] = await _texts_found(memory, query, "s")
            assert text in found

    async def test_hits_match_every_filter_s3_04(self, memory: Memory) -> None:
        """Filter by role and metadata before the best hits are chosen.

        The values `1`, `1.0`, `True` and `"1"` differ.
        """
        values = (1, 1.0, True, "1", None)
        # Many other matches: filters must apply before a memory limits its candidates.
        for index in range(250):
            await memory.append_event("s", Event(text="zebra", metadata={"n": index}))
        for value in values:
            await memory.append_event(
                "s", Event(role=MessageRole.TOOL, text="zebra", metadata={"v": value, "x": "y"})
            )
        for value in values:
            filters = MemoryFilters(session_id="s", role=MessageRole.TOOL, metadata={"v": value})
            [hit] = await memory.retrieve("zebra", 4, filters)
            assert hit.event.metadata["v"] is value or hit.event.metadata["v"] == value
            # In Python, `1`, `1.0` and `True` are equal.
            assert type(hit.event.metadata["v"]) is type(value)
        [old] = await memory.retrieve("zebra", 4, MemoryFilters(session_id="s", metadata={"n": 0}))
        assert old.event.metadata == {"n": 0}
        unmatched: list[dict[str, Scalar]] = [{"v": 1, "x": "z"}, {"v": 2}, {"w": None}]
        for metadata in unmatched:
            filters = MemoryFilters(session_id="s", metadata=metadata)
            assert not await memory.retrieve("zebra", 4, filters)
        assert not await memory.retrieve(
            "zebra", 4, MemoryFilters(session_id="other", role=MessageRole.TOOL)
        )

    async def test_summarises_the_newest_events_in_a_bounded_text_s3_04(
        self, memory: Memory
    ) -> None:
        """Return the role and first sentence of each event, oldest first, in 1,200 characters."""
        steps = [f"Step {index} is done. {'And so on. ' * 200}" for index in range(60)]
        await _append(memory, "s", *steps)
        await memory.append_event(
            "s", Event(role=MessageRole.ASSISTANT, text="All is done\nReally.")
        )
        summary = await memory.summarize_episode("s") or ""
        lines = summary.split("\n")
        assert lines[-2:] == ["user: Step 59 is done.", "assistant: All is done"]
        assert len(lines) == _SUMMARISED_EVENTS
        assert len(summary) <= _MAX_SUMMARY_CHARS
        assert summary == await memory.summarize_episode("s")

    async def test_recent_events_come_oldest_first_s3_06(self, memory: Memory) -> None:
        """Return the newest `limit` events in the order of appending."""
        for index in range(30):
            role = MessageRole.ASSISTANT if index % 2 else MessageRole.USER
            await memory.append_event("s", Event(role=role, text=str(index)))
        assert _event_texts(await memory.recent("s", limit=3)) == ["27", "28", "29"]
        assert [event.role for event in await memory.recent("s", limit=2)] == ["user", "assistant"]
        for limit in (100, 2**63 - 1, 2**63, 10**30):  # databases have integers of 64 bits
            assert len(await memory.recent("s", limit=limit)) == len(range(30))
            assert len(await memory.retrieve("29", limit, MemoryFilters(session_id="s"))) == 1
        assert await memory.recent("s", limit=-(2**64)) == []
        assert await memory.recent("s", limit=0) == await memory.recent("s", limit=-1) == []

    async def test_concurrent_appends_lose_nothing_s3_05(self, memory: Memory) -> None:
        """Append to one session from many tasks, and search in between."""
        filters = MemoryFilters(session_id="s")
        async with asyncio.TaskGroup() as tasks:
            for index in range(100):
                # With three digits, no number begins with another one.
                tasks.create_task(memory.append_event("s", Event(text=f"zebra number{index:03}")))
                tasks.create_task(memory.retrieve("zebra", 4, filters))
        texts = _event_texts(await memory.recent("s", limit=1_000))
        assert sorted(texts) == [f"zebra number{index:03}" for index in range(100)]
        for index in range(0, 100, 9):
            [hit] = await memory.retrieve(f"number{index:03}", 1, filters)
            assert hit.event.text.endswith(f"number{index:03}")

    async def test_changes_to_an_event_do_not_reach_the_memory_s3_04(self, memory: Memory) -> None:
        """Store and return copies of events."""
        appended = Event(text="zebra", metadata={"n": 1})
        await memory.append_event("s", appended)
        appended.metadata["n"] = 2
        [hit] = await memory.retrieve("zebra", 1, MemoryFilters(session_id="s"))
        hit.event.metadata["n"] = 3
        [event] = await memory.recent("s")
        assert event.metadata == {"n": 1}

    async def test_sessions_with_one_hash_prefix_stay_apart_s3_04_f_145(
        self, memory: Memory
    ) -> None:
        """Keep sessions apart whose ids have SHA-256 hashes with the same first 12 digits."""
        # An index may use such a prefix as its key.
        await _append(memory, "s5294434", "rain", "zebra")
        await _append(memory, "s34989017", "rain", "lion")
        assert await _texts_found(memory, "zebra", "s34989017") == []
        assert await _texts_found(memory, "zebra", "s5294434") == ["zebra"]

    async def test_takes_a_session_id_of_200_characters_s3_04(self, memory: Memory) -> None:
        """Accept the longest allowed id."""
        # 400 bytes in UTF-8, because the limit counts characters.
        await memory.append_event("é" * 200, Event(text="zebra"))
        assert len(await memory.retrieve("zebra", 4, MemoryFilters(session_id="é" * 200))) == 1

    @pytest.mark.parametrize("session_id", _BAD_SESSION_IDS)
    async def test_refuses_session_ids_outside_the_rules_s3_04(
        self, memory: Memory, session_id: str
    ) -> None:
        """Check the id in every method."""
        calls: list[tuple[str, Any]] = [
            ("append_event", (session_id, Event(text="x"))),
            ("summarize_episode", (session_id,)),
            ("recent", (session_id,)),
            ("retrieve", ("x", 4, MemoryFilters(session_id=session_id))),
        ]
        for method, arguments in calls:
            with pytest.raises(InvalidIdError):
                await getattr(memory, method)(*arguments)

    async def test_arguments_of_a_wrong_type_raise_type_errors_s3_04_u_b17(
        self, memory: Memory
    ) -> None:
        """Say what to pass, and store nothing."""
        filters = MemoryFilters(session_id="s")
        calls: dict[str, tuple[str, Any, Any]] = {
            "event must be an Event, got str; pass Event": ("append_event", ("s", "hello"), {}),
            "filters must be MemoryFilters, got NoneType": ("retrieve", ("x", 4, None), {}),
            "query must be a str, got NoneType": ("retrieve", (None, 4, filters), {}),
            "k must be an int, got NoneType": ("retrieve", ("x", None, filters), {}),
            "limit must be an int, got NoneType": ("recent", ("s",), {"limit": None}),
            "the session id None is not allowed": ("recent", (None,), {}),
        }
        for message, (method, arguments, options) in calls.items():
            with pytest.raises((TypeError, InvalidIdError), match=message):
                await getattr(memory, method)(*arguments, **options)
        assert await memory.recent("s") == []

    async def test_closing_twice_raises_no_error_s3_05(self, memory: Memory) -> None:
        """Close again after an `async with` block and after `aclose`."""
        async with memory:
            await memory.append_event("s", Event(text="zebra"))
        await memory.aclose()
        await memory.aclose()


# Ids that a database could confuse: by case, padding, normalization or wildcards.
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
# Some of them are users too, so a scope has to tell a user from a session.
_SESSIONS = ("s", "a", "%", 's" OR words:"zebra')


class FactMemoryContract(MemoryContract):
    """The tests of a `FactMemory`. The fixture `memory` must return one."""

    async def test_an_event_has_an_id_which_its_hit_shows_s3_04(self, memory: FactMemory) -> None:
        """Return a unique id for each event, and the same id in its hit."""
        ids = []
        for session in ("s", "t"):
            event_id = await memory.append_event(session, Event(text=f"zebra of {session}"))
            [hit] = await memory.retrieve("zebra", 4, MemoryFilters(session_id=session))
            assert hit.id == event_id != ""
            ids.append(event_id)
        assert ids[0] != ids[1]

    async def test_the_newest_fact_of_a_key_hides_older_ones_s3_04(
        self, memory: FactMemory
    ) -> None:
        """Hide older facts in searches, recent events and summaries, unless `history` is set.

        Facts of other scopes stay.
        """
        await _append(memory, "other", "zebra street of another session", key="address")
        # These match the query better than the newest fact, so no ranking hides them.
        streets = [f"zebra street: zebra zebra {street}" for street in ("first", "second", "third")]
        await _append(memory, "s", *streets, "the fourth", key="address")
        await _append(memory, "s", "zebra crossing", key="crossing")
        await _append(memory, "s", "street with a zebra")
        here = MemoryFilters(session_id="s")
        found = await _texts_found(memory, "zebra street fourth", "s")
        assert {*found} == {"the fourth", "zebra crossing", "street with a zebra"}
        assert (await memory.recent("s"))[0].text == "the fourth"
        assert "first" not in (await memory.summarize_episode("s") or "")
        past = await memory.retrieve(
            "zebra street fourth", 9, here.model_copy(update={"history": True})
        )
        assert [hit.current for hit in past] == [True] * 3 + [False] * 3
        texts = _event_texts(await memory.recent("s", history=True))
        assert [text.rpartition(" ")[2] for text in texts][:3] == ["first", "second", "third"]
        only = MemoryFilters(session_id="s", key="address", history=True)
        [hit] = await memory.retrieve("zebra fourth", 1, only)
        assert (hit.event.text, hit.key) == ("the fourth", "address")
        assert len(await _texts_found(memory, "zebra", "other")) == 1

    async def test_words_of_an_older_fact_find_the_newest_s3_05(self, memory: FactMemory) -> None:
        """Find a fact by words of the facts it replaced, unless it expired or was forgotten.

        The filters apply to the newest fact. A fact can be replaced by key or by id.
        """
        first = await memory.append_event(
            "s", Event(text="I live in zebra town"), user="u", key="home"
        )
        await memory.append_event("s", Event(text="now lion town"), user="u", key="home")
        last = await memory.append_event("t", Event(text="a village"), user="u", supersedes=first)
        here = MemoryFilters(session_id="s", user="u")
        filters_by_text: dict[str, list[dict[str, Any]]] = {
            "a village": [{"all_sessions": True}],
            "": [{}, {"all_sessions": True, "key": "home"}, {"all_sessions": True, "role": "user"}],
        }
        for text, updates in filters_by_text.items():
            for update in updates:
                hits = await memory.retrieve("zebra", 9, here.model_copy(update=update))
                # No hit is expected for the text "".
                assert _hit_texts(hits) == [text][: bool(text)]
        ever = await _texts_found(memory, "zebra", "s", user="u", all_sessions=True, history=True)
        assert ever == ["a village", "I live in zebra town"]
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

    async def test_a_key_is_shared_by_all_sessions_of_a_user_s3_04(
        self, memory: FactMemory
    ) -> None:
        """Replace a user's fact from another session."""
        await _append(memory, "s", "zebra one", user="u", key="k")
        await _append(memory, "t", "zebra two", user="u", key="k")
        await _append(memory, "s", "zebra of v", user="v", key="k")
        assert await _texts_found(memory, "zebra", "s", user="u") == []
        assert await _texts_found(memory, "zebra", "t", user="u") == ["zebra two"]
        # A session without events, as a user's next conversation begins.
        everywhere = MemoryFilters(session_id="new", user="u", all_sessions=True)
        [hit] = await memory.retrieve("zebra", 9, everywhere)
        assert (hit.session_id, hit.event.text) == ("t", "zebra two")
        past = await _texts_found(memory, "zebra", "new", user="u", all_sessions=True, history=True)
        assert past == ["zebra two", "zebra one"]

    async def test_an_event_supersedes_the_one_it_names_s3_04(self, memory: FactMemory) -> None:
        """Supersede an event by its id, refuse ids of other scopes, and then store nothing."""
        old = await memory.append_event("s", Event(text="zebra one"))
        theirs = await memory.append_event("s", Event(text="zebra of u"), user="u")
        new = await memory.append_event("s", Event(text="zebra two"), supersedes=old)
        [hit] = await memory.retrieve("zebra", 9, MemoryFilters(session_id="s"))
        assert hit.id == new
        # `int` accepts a leading zero and the digits of other scripts, such as U+0663.
        for wrong in (theirs, "", "0", "-1", f"0{new}", "9" * 40, "x' OR 1 --", "\u0663"):
            with pytest.raises(InvalidIdError, match="supersedes must be the id of an event"):
                await memory.append_event("s", Event(text="zebra three"), supersedes=wrong)
        assert _event_texts(await memory.recent("s")) == ["zebra two"]
        assert len(await memory.recent("s", user="u")) == 1

    async def test_an_expired_event_is_not_found_s3_04(self, memory: FactMemory) -> None:
        """Hide expired events, except in the history. A time without a zone is UTC."""
        now = datetime.now(UTC)
        for hours in (-1, 1):
            for index, zone in enumerate((None, UTC, timezone(timedelta(hours=9)))):
                moment = now + timedelta(hours=hours)
                until = moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)
                await memory.append_event(
                    "s", Event(text=f"zebra {hours} {index}"), valid_until=until
                )
        # The last moment overflows when it is converted to a zone in the east.
        await memory.append_event(
            "s", Event(text="zebra for good"), valid_until=datetime.max.replace(tzinfo=UTC)
        )
        current = ["zebra 1 0", "zebra 1 1", "zebra 1 2", "zebra for good"]
        here = MemoryFilters(session_id="s")
        assert sorted(_hit_texts(await memory.retrieve("zebra", 9, here))) == current
        assert _event_texts(await memory.recent("s")) == current
        assert "-1" not in (await memory.summarize_episode("s") or "")
        past = await memory.retrieve("zebra", 9, here.model_copy(update={"history": True}))
        assert [hit.current for hit in past] == [True] * 4 + [False] * 3

    async def test_a_repeated_event_is_stored_once_s3_04(self, memory: FactMemory) -> None:
        """Store an event again only after another event, or with other metadata, key or end."""
        later = datetime.now(UTC) + timedelta(hours=1)
        options: list[dict[str, Any]] = [
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
        # An answer came in between, so the user asks again.
        assert await memory.append_event("s", question) != first
        assert _event_texts(await memory.recent("s")) == [
            "zebra?",
            "zebra rows",
            "zebra?",
            "zebra?",
        ]
        for index, option in enumerate(options):
            event = Event(text="zebra.")
            event_id = await memory.append_event(f"t{index}", event, **option)
            assert await memory.append_event(f"t{index}", event, **option) == event_id
            assert await memory.append_event(f"t{index}", event, **options[index - 1]) != event_id
        await _append(memory, "u", "zebra 1", "zebra 2", "zebra 1", key="k")
        assert _event_texts(await memory.recent("u", history=True)) == [
            "zebra 1",
            "zebra 2",
            "zebra 1",
        ]
        assert _event_texts(await memory.recent("u")) == ["zebra 1"]

    async def test_users_never_see_events_of_others_s3_04(self, memory: FactMemory) -> None:
        """Combine users and sessions with similar ids, and call every method."""
        pairs = [(user, session_id) for user in _USERS for session_id in _SESSIONS]
        texts = {pair: f"zebra number{index:03}" for index, pair in enumerate(pairs)}
        for (user, session_id), text in texts.items():
            await memory.append_event(
                session_id, Event(text=text), user=user, key="k" if user is None else session_id
            )
        for (user, session_id), text in texts.items():
            [hit] = await memory.retrieve(
                "zebra", 99, MemoryFilters(session_id=session_id, user=user)
            )
            assert (hit.session_id, hit.event.text) == (session_id, text)
            assert _event_texts(await memory.recent(session_id, user=user)) == [text]
            assert await memory.summarize_episode(session_id, user=user) == f"user: {text}"
        # None is left out, because `all_sessions` needs a user.
        for user in _USERS[1:]:
            filters = MemoryFilters(session_id="none", user=user, all_sessions=True)
            hit_texts = _hit_texts(await memory.retrieve("zebra", 99, filters))
            assert sorted(hit_texts) == sorted(texts[user, name] for name in _SESSIONS)
            assert not await memory.retrieve(
                "zebra", 99, MemoryFilters(session_id="none", user=user)
            )
        mine = UserMemory(memory, "a")
        for filters in (MemoryFilters(session_id="s", user="A"), MemoryFilters(session_id="s")):
            assert _hit_texts(await mine.retrieve("zebra", 99, filters)) == [texts["a", "s"]]

    async def test_users_with_one_hash_prefix_stay_apart_s3_04_f_145(
        self, memory: FactMemory
    ) -> None:
        """Keep users apart whose scopes have SHA-256 hashes with the same first 12 digits."""
        # An index may use such a prefix as its key.
        await _append(memory, "s", "rain", "zebra", user="u6714372")
        await _append(memory, "s", "rain", "lion", user="u18455147")
        for user, texts in (("u18455147", []), ("u6714372", ["zebra"])):
            found = await _texts_found(memory, "zebra", "none", user=user, all_sessions=True)
            assert found == texts

    async def test_forgets_a_session_a_user_or_an_event_s3_04(self, memory: FactMemory) -> None:
        """Return the number of erased events, keep all others, and never reuse an id."""
        ids = {}
        for user in (None, "u", "v"):
            for session_id in ("s", "t"):
                for index in range(3):
                    event = Event(text=f"zebra {index} of {user}")
                    ids[user, session_id, index] = await memory.append_event(
                        session_id, event, user=user
                    )
        mine = UserMemory(memory, "u")
        assert await memory.forget(id="no id") == await memory.forget(session_id="none") == 0
        assert await mine.forget(id=ids["v", "s", 0]) == await memory.forget(user="s") == 0
        # The event is in the other session of the user.
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
            expected = [f"zebra {index} of {user}" for index in texts]
            filters = MemoryFilters(session_id=session_id, user=user)
            assert sorted(_hit_texts(await memory.retrieve("zebra", 9, filters))) == expected
            assert _event_texts(await memory.recent(session_id, user=user)) == expected
        assert [await mine.forget(session_id="s"), await mine.forget(), await mine.forget()] == [
            3,
            3,
            0,
        ]
        assert await mine.recent("t") == []
        again = await memory.append_event("t", Event(text="zebra giraffe"), user="v")
        # The highest id was erased above, and SQLite by default gives it to the next row.
        assert again not in ids.values()
        assert (await memory.retrieve("zebra giraffe", 9, MemoryFilters(session_id="t", user="v")))[
            0
        ].id == again

    async def test_a_superseded_fact_stays_history_s3_04(self, memory: FactMemory) -> None:
        """Keep an old fact superseded when the newer fact is forgotten."""
        await _append(memory, "s", "zebra one", key="k")
        newer = await memory.append_event("s", Event(text="zebra two"), key="k")
        assert await memory.forget(id=newer) == 1
        assert await memory.retrieve("zebra", 9, MemoryFilters(session_id="s")) == []
        assert len(await memory.recent("s", history=True)) == 1

    async def test_one_of_concurrent_facts_of_a_key_is_current_s3_04(
        self, memory: FactMemory
    ) -> None:
        """Make the newest fact current, and store repeated events once."""
        async with asyncio.TaskGroup() as tasks:
            for index in range(20):
                tasks.create_task(
                    # Texts come in pairs, so a repeat may arrive before its first event is stored.
                    memory.append_event("s", Event(text=f"zebra {index // 2}"), user="u", key="k")
                )
                tasks.create_task(memory.append_event("t", Event(text="zebra"), user="u"))
        events = await memory.recent("s", user="u", history=True)
        assert await memory.recent("s", user="u") == events[-1:]
        assert len(await memory.recent("t", user="u")) == 1

    async def test_invalid_arguments_of_facts_are_refused_s3_04(self, memory: FactMemory) -> None:
        """Say what to pass, and store or erase nothing."""
        # Some memories begin a user's scope with U+001F.
        for bad in ("", " ", "a\nb", "\x1fu", "u" * 201):
            calls: list[tuple[str, str, Any, Any]] = [
                ("key", "append_event", ("s", Event(text="zebra")), {"key": bad}),
                ("user", "append_event", ("s", Event(text="zebra")), {"user": bad}),
                ("user", "recent", ("s",), {"user": bad}),
                ("user", "retrieve", ("zebra", 4, MemoryFilters(session_id="s", user=bad)), {}),
                ("user", "forget", (), {"user": bad}),
            ]
            for argument, method, arguments, options in calls:
                message = f"the {argument} .* is not allowed; use 1 to 200 printable"
                with pytest.raises(InvalidIdError, match=message):
                    await getattr(memory, method)(*arguments, **options)
        nobody = MemoryFilters(session_id="s", all_sessions=True)
        with pytest.raises(InvalidIdError, match="all_sessions needs a user"):
            await memory.retrieve("zebra", 4, nobody)
        wrong: dict[str, tuple[str, Any, Any]] = {
            "valid_until must be a datetime, got int": (
                "append_event",
                ("s", Event(text="zebra")),
                {"valid_until": 5},
            ),
            "supersedes must be a str, got int; pass an id": (
                "append_event",
                ("s", Event(text="zebra")),
                {"supersedes": 5},
            ),
            "id must be a str, got int; pass an id": ("forget", (), {"id": 5}),
            "forget needs session_id, user or id": ("forget", (), {}),
        }
        for message, (method, arguments, options) in wrong.items():
            with pytest.raises(TypeError, match=message):
                await getattr(memory, method)(*arguments, **options)
        assert await memory.recent("s") == []


async def _append(memory: Any, session_id: str, *texts: str, **options: Any) -> None:
    for text in texts:
        await memory.append_event(session_id, Event(text=text), **options)


async def _texts_found(memory: Memory, query: str, session_id: str, **filters: Any) -> list[str]:
    hits = await memory.retrieve(query, 99, MemoryFilters(session_id=session_id, **filters))
    return _hit_texts(hits)


def _hit_texts(hits: Sequence[MemoryHit]) -> list[str]:
    return [hit.event.text for hit in hits]


def _event_texts(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events]
