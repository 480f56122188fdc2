"""Which browsers are admitted, and which headers they get."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from llm_common.apps.inspector.application import Inspector
from tests.apps.inspector.hostile_data import HOST, TOKEN, browser


@pytest.fixture
def inspector(tmp_path: Path) -> Inspector:
    return Inspector(tmp_path / "store", tmp_path / "traces")


def stranger(inspector: Inspector, host: str = HOST) -> TestClient:
    return TestClient(inspector.app(token=TOKEN, port=8321), base_url=host, follow_redirects=False)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/queries", 401),
        ("/", 401),
        ("/other", 401),
        ("/queries?token=", 403),
        ("/queries?token=wrong", 403),
        ("/queries?token=\u20ac", 403),
        (f"/queries?token=x&token={TOKEN}", 403),
    ],
)
def test_without_the_token_nothing_is_shown(
    address: str, status: int, inspector: Inspector
) -> None:
    answer = stranger(inspector).get(address)
    assert answer.status_code == status
    assert "set-cookie" not in answer.headers
    assert "<table" not in answer.text
    assert TOKEN not in answer.text


def test_the_token_becomes_a_cookie_and_leaves_the_address(inspector: Inspector) -> None:
    answer = stranger(inspector).get(f"/queries?words=a+b&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queries?words=a+b")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    for asked, leads_to in (
        (f"/%2Fevil.example/?token={TOKEN}", "/evil.example/"),
        (f"/queries/a%3Fb%23c%25d?token={TOKEN}&page=2", "/queries/a%3Fb%23c%25d?page=2"),
    ):
        assert stranger(inspector).get(asked).headers["location"] == leads_to


def test_the_cookie_of_another_token_or_port_is_refused(inspector: Inspector) -> None:
    cookies = browser(inspector).cookies
    assert (
        TestClient(inspector.app(token=TOKEN, port=8321), base_url=HOST, cookies=dict(cookies))
        .get("/runs")
        .is_success
    )
    for token, port in ((TOKEN + "x", 8321), (TOKEN, 8322)):
        client = TestClient(
            inspector.app(token=token, port=port), base_url=HOST, cookies=dict(cookies)
        )
        assert client.get("/runs").status_code == 401
    broken = TestClient(
        inspector.app(token=TOKEN, port=8321),
        base_url=HOST,
        headers={"cookie": "a=\x01;;=;" + "x" * 99},
    )
    assert broken.get("/runs").status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "0.0.0.0", "[::1]", "x@127.0.0.1"],
)
@pytest.mark.parametrize("address", ["/queries", f"/queries?token={TOKEN}"])
def test_another_host_name_is_refused(address: str, host: str, inspector: Inspector) -> None:
    client = browser(inspector)
    answer = client.get(address, headers={"host": host}, follow_redirects=False)
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("site", "status"),
    [("cross-site", 401), ("same-site", 401), ("same-origin", 200), ("none", 200)],
)
def test_a_page_of_another_site_cannot_use_the_cookie(
    site: str, status: int, inspector: Inspector
) -> None:
    answer = browser(inspector).get("/queries", headers={"sec-fetch-site": site})
    assert answer.status_code == status


SAFE = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.mark.parametrize("address", ["/queries", "/other", "/queries?token=wrong"])
def test_every_response_has_security_headers(address: str, inspector: Inspector) -> None:
    headers = browser(inspector).get(address).headers
    assert {name: headers[name] for name in SAFE} == SAFE
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
