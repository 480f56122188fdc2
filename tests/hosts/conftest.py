"""Run each tour once, however many tests look at it."""

from collections.abc import Callable

import pytest

from tests.hosts.measures import write_measures
from tests.hosts.real_hosts import HOSTS, REAL_HOSTS, RealHost
from tests.hosts.tours import Tour, run_tour

TourOf = Callable[[str], Tour]


# The tests of one host run in one process, so that they share its tours.
HOST_PARAMETERS = [
    pytest.param(host, id=host.name, marks=pytest.mark.xdist_group(host.name))
    for host in REAL_HOSTS
]


@pytest.fixture(scope="session", params=HOST_PARAMETERS)
def host(request: pytest.FixtureRequest) -> RealHost:
    assert HOSTS.exists(), "the hosts are not installed; run `make test-hosts`"
    found: RealHost = request.param
    return found


@pytest.fixture(scope="session")
def tour_of(host: RealHost, tmp_path_factory: pytest.TempPathFactory) -> TourOf:
    """Return a function that takes the host on a tour, by the way to the servers."""
    tours: dict[str, Tour] = {}

    def tour_of(way: str) -> Tour:
        if way not in tours:
            # Folders of the same length, since their names are part of the requests.
            tours[way] = run_tour(host, way, tmp_path_factory.mktemp("tour"))
            write_measures(host, way, tours[way])
        return tours[way]

    return tour_of
