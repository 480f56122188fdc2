"""What the official suites see of a server, they see of it behind the gateway too."""

from collections.abc import Callable, Mapping

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.servers import served
from tests.conformance.suites import (
    INSTALLED,
    SUITES,
    WAYS,
    Check,
    Suite,
    run_server_suite,
    save,
)

pytestmark = pytest.mark.conformance

Statuses = Mapping[Check, str]


@pytest.fixture(scope="session")
def statuses_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Suite, str], Statuses]:
    """Return a function that runs a suite on a way to the server, once."""
    assert INSTALLED.exists(), "the suites are not installed; run `make test-conformance`"
    runs: dict[tuple[str, str], Statuses] = {}

    def statuses_of(suite: Suite, way: str) -> Statuses:
        if (suite.name, way) not in runs:
            with served(way, tmp_path_factory.mktemp("served")) as url:
                statuses = run_server_suite(suite, url)
            save(f"{suite.name}, {way}", statuses)
            runs[suite.name, way] = statuses
        return runs[suite.name, way]

    return statuses_of


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_server_loses_no_check_behind_the_gateway(
    suite: Suite, way: str, statuses_of: Callable[[Suite, str], Statuses]
) -> None:
    bare, behind = statuses_of(suite, WAYS[0]), statuses_of(suite, way)
    lost: dict[Check, str] = {}
    for check, status in bare.items():
        if status == "SUCCESS" and behind.get(check) != "SUCCESS":
            lost[check] = behind.get(check, "not reached")
    unnamed = {check: status for check, status in lost.items() if check[:2] not in DIFFERENCES}
    assert not unnamed
