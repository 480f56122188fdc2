"""Both selectors against what models write, read off a real connection."""

import pytest

from llm_common.core.http.openai_compatible import OpenAICompatibleClient
from tests.core.loopback import Wire, loopback, ok, response
from tests.core.misbehaving_server import misbehaving, reply
from tests.selection.choosers import CHOOSERS, SOUND_CHOICE
from tests.selection.odd_replies import ODD_REPLIES, SOUND

KINDS = sorted(CHOOSERS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", ODD_REPLIES)
async def test_an_odd_reply_leads_to_the_sound_choice_or_to_none(row: str, kind: str) -> None:
    odd = ODD_REPLIES[row]
    async with loopback(misbehaving(reply(200, odd.body()))) as server:
        async with OpenAICompatibleClient(server.config()) as client:
            outcome = await CHOOSERS[kind](client, fallback_model="second")
        requests = len(server.requests)
    readable = kind in odd.read_by
    assert outcome.chosen == (SOUND_CHOICE[kind] if readable else [])
    assert outcome.status == ("ok" if readable else "invalid")
    assert requests == len(outcome.attempts) <= 2


@pytest.mark.parametrize("kind", KINDS, ids=[f"F-087-{kind}" for kind in KINDS])
async def test_no_prefix_of_a_good_text_selects_anything(kind: str) -> None:
    async def shorter_each_time(wire: Wire) -> None:
        while await wire.request() is not None:
            await wire.send(response(200, ok(SOUND[: len(SOUND) - len(wire.requests)])))

    async with loopback(shorter_each_time) as server, OpenAICompatibleClient(server.config()) as client:
        for length in reversed(range(len(SOUND))):
            outcome = await CHOOSERS[kind](client)
            assert (outcome.chosen, outcome.status) == ([], "invalid"), length
        assert len(server.requests) == len(SOUND)


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.torture), 7])
@pytest.mark.parametrize("kind", KINDS, ids=[f"F-087-{kind}" for kind in KINDS])
async def test_no_prefix_of_a_good_body_selects_anything(kind: str, stride: int) -> None:
    """The whole reply of the endpoint is cut, and declared to be that long."""
    body = ok(SOUND)
    lengths = range(0, len(body), stride)

    async def longer_each_time(wire: Wire) -> None:
        while await wire.request() is not None:
            await wire.send(response(200, body[: lengths[len(wire.requests) - 1]]))

    async with loopback(longer_each_time) as server, OpenAICompatibleClient(server.config()) as client:
        for length in lengths:
            outcome = await CHOOSERS[kind](client)
            assert (outcome.chosen, outcome.status) == ([], "invalid"), length
