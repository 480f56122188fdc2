"""What a host keeps when its servers are put behind the gateway, with the released hosts.

A scripted model on loopback takes the place of the host's model.
"""

import pytest

from tests.hosts.conftest import TourOf
from tests.hosts.real_hosts import RealHost
from tests.hosts.scripted_model import GATEWAY_SEARCH, ModelRequest, deferred_name, find_tool
from tests.hosts.tours import (
    PART_COMMIT,
    READER,
    RESUMED_WAY,
    SILENT_TOOL,
    WAYS,
    request_tokens,
    tokens_of,
)
from tests.hosts.workspace import COMMITS, INSIDE, OUTSIDE, commit_message

pytestmark = pytest.mark.hosts
BEHIND_GATEWAY = ("gateway", "search")
MAX_PREVIEW_TOKENS = 400
PNG_HEAD = "iVBORw0KGgo"
HOST_FRAME_TOKENS = 60
"""What hosts put around a result, such as the seconds that it took."""


def name_of(request: ModelRequest, tool: str) -> str | None:
    """Return the name of a tool that a request lists, or names among the deferred ones."""
    listed = find_tool(request.tools, tool)
    return listed.name if listed else deferred_name(request, tool)


@pytest.mark.parametrize("way", ["direct", *BEHIND_GATEWAY])
def test_the_first_request_names_the_tools(tour_of: TourOf, way: str) -> None:
    expected = GATEWAY_SEARCH if way == "search" else "git_log"
    assert name_of(tour_of(way).first_requests[0], expected)


def test_the_tools_of_a_silent_server_are_there_after_a_restart(
    host: RealHost, tour_of: TourOf
) -> None:
    tour = tour_of(RESUMED_WAY)
    first, restarted = tour.first_requests
    assert name_of(first, SILENT_TOOL)
    if host.defers_tools:  # the old names stay in the conversation, so they prove nothing
        name = f"mcp__gateway__{SILENT_TOOL}"
        assert tour.text("loaded") == name or f'"name":"{name}"' in tour.text("loaded")
    else:
        assert name_of(restarted, SILENT_TOOL)


@pytest.mark.parametrize("way", BEHIND_GATEWAY)
def test_a_long_result_becomes_a_preview(tour_of: TourOf, way: str) -> None:
    preview = tour_of(way).text("log")
    assert tokens_of(preview) <= MAX_PREVIEW_TOKENS + HOST_FRAME_TOKENS
    assert "Change number" in preview


@pytest.mark.parametrize("way", BEHIND_GATEWAY)
def test_a_part_of_a_long_result_is_read_back(tour_of: TourOf, way: str) -> None:
    part = tour_of(way).text("part")
    assert commit_message(PART_COMMIT) in part
    assert commit_message(PART_COMMIT - 1) not in part


@pytest.mark.parametrize(
    ("way", "step"), [*((way, "queried") for way in BEHIND_GATEWAY), (RESUMED_WAY, "queried again")]
)
def test_a_long_result_is_queried_with_sql_and_after_a_restart_too(
    tour_of: TourOf, way: str, step: str
) -> None:
    assert f"commits: {COMMITS}" in tour_of(way).text(step)


@pytest.mark.parametrize("way", BEHIND_GATEWAY)
def test_a_short_result_does_not_change(tour_of: TourOf, way: str) -> None:
    short = tour_of(way).text("inside")
    assert INSIDE in short
    assert tokens_of(short) <= tokens_of(tour_of("direct").text("inside")) + HOST_FRAME_TOKENS


@pytest.mark.parametrize("way", BEHIND_GATEWAY)
def test_the_folder_boundary_is_the_same_as_without_the_gateway(tour_of: TourOf, way: str) -> None:
    is_readable = OUTSIDE in tour_of("direct").text("outside")
    assert (OUTSIDE in tour_of(way).text("outside")) == is_readable


@pytest.mark.parametrize("way", ["direct", *BEHIND_GATEWAY])
def test_a_picture_reaches_the_model(host: RealHost, tour_of: TourOf, way: str) -> None:
    tour = tour_of(way)
    if host.shows_pictures:
        # Gemini CLI sends it twice in a conversation that goes on.
        assert tour.images[0] == 1
        assert all(tour.images)
    else:
        assert PNG_HEAD in tour.text("picture")


@pytest.mark.parametrize("way", BEHIND_GATEWAY)
def test_a_preview_names_the_reader_as_the_host_does(tour_of: TourOf, way: str) -> None:
    tour = tour_of(way)
    name = name_of(tour.first_requests[0], READER)
    assert name is not None
    assert f" {name} " in tour.text("log")


def test_an_old_pointer_is_read_after_a_restart(tour_of: TourOf) -> None:
    assert commit_message(PART_COMMIT) in tour_of(RESUMED_WAY).text("resumed")


def test_the_search_costs_fewer_tokens_than_the_list(host: RealHost, tour_of: TourOf) -> None:
    tokens = {way: request_tokens(tour_of(way).first_requests[0]) for way in WAYS}
    assert tokens["none"] < tokens["search"] < tokens["gateway"]
    if not host.defers_tools:
        assert tokens["search"] < tokens["direct"]
