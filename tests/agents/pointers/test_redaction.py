import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_common.agents.pointers.redaction import REDACTED, is_secret_key, redact_args, redact_text

CANARY = "hunter2-CANARY-9f3a7c51"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{CANARY}@example.com/a",
        f"https://{CANARY}@example.com/a",
        f"postgres://app:{CANARY}@db:5432/x",
        f"https://example.com/?api_key={CANARY}&page=2",
        f"https://example.com/?page=2&sig={CANARY}#top",
        f"https://example.com/?key={CANARY}",
        f"https://bucket/x?X-Amz-Signature={CANARY}&X-Amz-Credential={CANARY}",
        f"Authorization: Bearer {CANARY}",
        f"authorization: Digest username={CANARY}, response={CANARY}",
        f"curl -H 'Authorization: Bearer {CANARY}'",
        f"bearer {CANARY}",
        "Basic aHVudGVyMi1DQU5BUlktOWYzYTdjNTE=",
        f"Set-Cookie: session={CANARY}; other={CANARY}",
        f'{{"client_secret": "{CANARY} with \\" quotes", "a": 1}}',
        f"{{'password': '{CANARY}'}}",
        f"password={CANARY}",
        f"AWS_SECRET_ACCESS_KEY={CANARY}",
        f"x-api-key: {CANARY}",
        f"refresh_token = {CANARY}",
        f"sk-{CANARY}",
        "ghp_" + CANARY.replace("-", "_"),
        "AKIAIOSFODNN7EXAMPLE",
        f"xoxb-{CANARY}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}",
    ],
)
def test_secrets_of_known_shape_leave_s0_07(text: str) -> None:
    redacted = redact_text(f"before {text}")
    assert redacted.startswith("before ")
    assert REDACTED in redacted
    for secret in (CANARY, "aHVudGVy", "AKIAIOSF", "c2lnbmF0dXJl", CANARY.replace("-", "_")):
        assert secret not in redacted
    assert redact_text(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=500, prompt_tokens: 12",
        "https://example.com/a?page=2&q=x@y",
        "write to a@example.com",
        "basic instructions for the task-management team",
        "the secretary signed it",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        *((key, True) for key in ("api_key", "apikey", "X-API-Key", "apiKey", "access_token", "refreshToken", "token")),
        *((key, True) for key in ("client.secret", "PASSWORD", "passwd", "Authorization", "signature", "sig")),
        *((key, True) for key in ("aws_credential", "Set-Cookie", "private_key", "password_hash", "SECRET ACCESS KEY")),
        *((key, False) for key in ("max_tokens", "token_type", "secretary", "design", "keyword", "ticker", "", "key")),
    ],
)
def test_knows_the_names_of_secrets(key: str, secret: bool) -> None:
    assert is_secret_key(key) is secret


def test_arguments_lose_their_secrets_at_any_depth() -> None:
    args = {
        "query": f"see https://u:{CANARY}@h/",
        "headers": {"X-Api-Key": CANARY, "Accept": "json"},
        "list": [{"password": {"nested": CANARY}}],
        "limit": 5,
        "token": None,
    }
    redacted = redact_args(args)
    assert CANARY not in str(redacted)
    assert redacted["headers"] == {"X-Api-Key": REDACTED, "Accept": "json"}
    assert redacted["list"] == [{"password": REDACTED}]
    assert (redacted["limit"], redacted["token"]) == (5, None)
    assert CANARY in str(args)


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("abk=:@/?&\"'\\ -ey.J\n"), max_size=60), st.sampled_from(["token=", "password: "]))
def test_a_named_secret_leaves_whatever_stands_before_it(noise: str, name: str) -> None:
    assert CANARY not in redact_text(f"{noise} {name}{CANARY}")


@pytest.mark.parametrize(
    "piece",
    ["eyJ", "-eyJ", "://", 'token:"', "Basic ", "sk-", "-----BEGIN PRIVATE KEY-----", "authorization:", "key ", "\\"],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    start = time.perf_counter()
    redact_text(text)
    assert time.perf_counter() - start < 1.5
