"""Tests both selectors with odd replies over a real connection."""

import pytest

from llm_common.core import OpenAICompatibleClient
from tests.core.loopback import Wire, loopback, ok, response
from tests.core.misbehaving_server import misbehaving, reply
from tests.selection.choosers import CHOOSERS, SOUND_CHOICE
from tests.selection.odd_replies import ODD_REPLIES, SOUND

KINDS = sorted(CHOOSERS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", ODD_REPLIES)
async def test_an_odd_reply_gives_the_sound_choice_or_none(row: str, kind: str) -> None:
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
@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.torture), 25])
@pytest.mark.parametrize("part", ["text", "body"])
async def test_no_prefix_of_a_good_reply_selects_anything(
    kind: str, part: str, stride: int
) -> None:
    """Cut the text, or the whole body with a matching Content-Length."""
    whole = ok(SOUND)
    bodies = [ok(SOUND[:end]) for end in range(0, len(SOUND), stride)]
    if part == "body":
        bodies = [whole[:end] for end in range(0, len(whole), stride)]

    async def longer_each_time(wire: Wire) -> None:
        while await wire.request() is not None:
            await wire.send(response(200, bodies[len(wire.requests) - 1]))

    async with (
        loopback(longer_each_time) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        for body in bodies:
            outcome = await CHOOSERS[kind](client)
            assert (outcome.chosen, outcome.status) == ([], "invalid"), body
