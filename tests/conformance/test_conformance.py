"""What the official suites see of a server, they see of it behind the gateway too."""

import sys
from collections.abc import Callable, Mapping

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.servers import served
from tests.conformance.suites import (
    CLIENTS,
    INSTALLED,
    SUITES,
    WAYS,
    Check,
    Suite,
    client_scenarios,
    run_client_scenario,
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


def unnamed(bare: Statuses, behind: Statuses) -> dict[Check, str]:
    """Return what passes without the gateway and not with it, without what has a reason."""
    lost: dict[Check, str] = {}
    for check, status in bare.items():
        passes = behind.get(check) == "SUCCESS"
        if status == "SUCCESS" and not passes and check[:2] not in DIFFERENCES:
            lost[check] = behind.get(check, "not reached")
    return lost


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_server_loses_no_check_behind_the_gateway(
    suite: Suite, way: str, statuses_of: Callable[[Suite, str], Statuses]
) -> None:
    assert not unnamed(statuses_of(suite, WAYS[0]), statuses_of(suite, way))


@pytest.mark.parametrize("package", [suite.package for suite in SUITES[:2]])
def test_the_gateway_as_a_client_loses_no_check_of_the_sdks_client(package: str) -> None:
    statuses: dict[str, dict[Check, str]] = {way: {} for way in CLIENTS}
    for scenario in client_scenarios(package):
        for way in CLIENTS:
            command = f"{sys.executable} -m tests.conformance.client {way}"
            statuses[way] |= run_client_scenario(package, scenario, command)
    for way in CLIENTS:
        save(f"{package}, client, {way}", statuses[way])
    assert not unnamed(statuses["bare"], statuses["gateway"])
