"""Tests the exact result of redaction at the edges of its rules."""

import pytest

from llm_common.agents import Redactor
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.text.canonical import Json


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Authorization: Bearer aB3x9Qz7kL2m tail", "Authorization: [redacted]"),
        ("x(a,password,\nb,hunter2x,\n", "x(a,password,\nb,hunter2x,\n"),
        ("password\nhunter2x\nhunter3x\n", "password\nhunter2x\nhunter3x\n"),
        ("password='go here'", "password='go here'"),
        (
            "a\n-----END PRIVATE KEY-----\naB3x9Qz7aB3x9Qz7\n-----END PRIVATE KEY-----",
            "a\n-----END PRIVATE KEY-----[redacted]",
        ),
        (
            "Private-Lines: 1\nAAAAaB3x9Qz7aB3x9Qz7AAAA=\nPrivate-MAC: 00",
            "Private-Lines: 1\n[redacted]-MAC: 00",
        ),
        ('password: str = default = "hunter2x"', 'password: str = default = "[redacted]"'),
        ('12:00 {"password": ");hunter2x"}', '12:00 {"password": "[redacted]"}'),
        ('say("password:", hunter2x) + "a"', 'say("password:", hunter2x) + "a"'),
        ("if password == 'hunter2xyz':", "if password == '[redacted]':"),
        ("--password the value", "--password the value"),
        ('["password", "hunter"]', '["password", "hunter"]'),
        ("name: password\nvalue: hunter", "name: password\nvalue: [redacted]"),
        ("a;password\nb;correct horse\n", "a;password\nb;correct horse\n"),
        ("api Key: aB3x9Qz7k", "api Key: [redacted]"),
        ("api 2 key: aB3x9Qz7k", "api 2 key: aB3x9Qz7k"),
        ("x\\tpw=hunter2", "x\\tpw=[redacted]"),
        ("password =hunter", "password =hunter"),
        ("DB_PASSWORD=abc)def", "DB_PASSWORD=[redacted]"),
        ("password=abc)", "password=abc)"),
        ("f(x, password=hunter", "f(x, password=hunter"),
        ("secret: {a: {b: 1}, c: aB3x9Qz7aB}", "secret: {a: {b: 1}, c: [redacted]}"),
        ("secret:\n  a: aB3x9Qz7aB\nb: aB3x9Qz7aB\n", "secret:\n  a: [redacted]\nb: aB3x9Qz7aB\n"),
        ("'cookie': theme=dark-blue", "'cookie': theme=dark-blue"),
        ("cookie=theme=dark-blue", "cookie=theme=dark-blue"),
        ("authorization: Token hunter2", "authorization: [redacted]"),
        ("Authorization: AB 12ab", "Authorization: AB 12ab"),
        ('password: "hunter2x z', 'password: "hunter2x z'),
        ("password='it is", "password=[redacted] is"),
        ("token=aB3x9Qz7", "token=[redacted]"),
        ("token=Http2Token", "token=[redacted]"),
        ("token: Http2Token", "token: Http2Token"),
        ("password: 123456", "password: [redacted]"),
        ("password: abcdefghijklmnopqrst", "password: [redacted]"),
        ("password: password1", "password: password1"),
        ("password=password1", "password=[redacted]"),
        ("password='''hunter'2x''' z", "password='''[redacted]''' z"),
        ('password=\\"hun\\\\\\"ter2x\\" z', 'password=\\"[redacted]\\" z'),
        ("password='hun\\\\' z", "password='[redacted]' z"),
        ("password: (abc)def1", "password: (abc)def1"),
        ("sk-abcdefghijklmnop1qr", "[redacted]"),
        ("sk-abcdefghijklmnopqrst", "sk-abcdefghijklmnopqrst"),
        ("x\\nsk-aB3x9Qz7aB3x9Qz7", "x\\n[redacted]"),
        ("\x1b[31msk-aB3x9Qz7aB3x9Qz7\x1b[0m", "\x1b[31m[redacted]\x1b[0m"),
        ("-----BEGIN PRIVATE KEY-----\nabcdefghijklmno1\n-----END PRIVATE KEY-----", "[redacted]"),
        (
            "-----BEGIN PRIVATE KEY-----\naB3x9Qz7aB3x9Qz7 !\n-----END PRIVATE KEY-----",
            "[redacted]",
        ),
        ("https://aB3x9Qz7kL@host", "https://[redacted]@host"),
        ("token=abcdef1234567890", "token=[redacted]"),
        ("token='abcdAbcdAbcdAbcd'", "token='[redacted]'"),
        ("token='one two three aB3x9Qz7'", "token='[redacted]'"),
        ("token='dXNlcjpwYXNz'", "token='[redacted]'"),
        ("token='dXNlcjpwYQBz'", "token='dXNlcjpwYQBz'"),
        ("token_value='aB3x9Qz7k'", "token_value='[redacted]'"),
        ("session_id='aB3x9Qz7k'", "session_id='aB3x9Qz7k'"),
        ("sort_key='aB3x9Qz7k'", "sort_key='aB3x9Qz7k'"),
        ("dbpass='hunter2'", "dbpass='[redacted]'"),
        ("secret_policy='aB3x9Qz7k'", "secret_policy='aB3x9Qz7k'"),
        ("token2='aB3x9Qz7k'", "token2='[redacted]'"),
        ("password='super root'", "password='[redacted]'"),
        ("AGE-SECRET-KEY-1//0aB3x9Qz7aB3x9Qz7aB3x9", "AGE-SECRET-KEY-[redacted]"),
    ],
)
def test_a_text_is_redacted_exactly(text: str, redacted: str) -> None:
    assert DEFAULT_REDACTOR.text(text) == redacted


@pytest.mark.parametrize(
    ("data", "redacted"),
    [
        (["ssh", "-p", "hunter2xyz", "token"], ["ssh", "-p", "hunter2xyz", "token"]),
        (["curl", "-u", "bob:abcdefg"], ["curl", "-u", "bob:abcdefg"]),
        (["curl", "-u", "bob:abcdefg1"], ["curl", "-u", "bob:[redacted]"]),
        (["-password", "hunter2xyz", "token"], ["-password", "hunter2xyz", "token"]),
        ({"Name": "API_KEY", "value": "aB3x9Qz7k"}, {"Name": "API_KEY", "value": "[redacted]"}),
        (
            {"password": {"user": "hunter", "pin": "aB3x9Qz7k"}},
            {"password": {"user": "hunter", "pin": "[redacted]"}},
        ),
        ({"password": ["abcdefg", "x"]}, {"password": ["[redacted]", "x"]}),
        ({"password": [{"x": "abcdefg"}]}, {"password": [{"x": "abcdefg"}]}),
        ({"otp": 123456}, {"otp": "[redacted]"}),
        ({"x": '["password", "hunter2x"]'}, {"x": '["password", "[redacted]"]'}),
    ],
)
def test_data_is_redacted_exactly(data: Json, redacted: Json) -> None:
    assert DEFAULT_REDACTOR.data(data) == redacted


def test_a_name_of_the_caller_makes_everything_but_a_boolean_a_secret() -> None:
    redactor = Redactor(extra_keys=("internal_pin",))
    assert redactor.args({"internal_pin": True}) == {"internal_pin": True}
    assert redactor.args({"internal_pin": 0}) == {"internal_pin": "[redacted]"}
    assert redactor.is_secret("internal_pin", 2.5)
    assert redactor.text("internal_pin=[redacted]") == "internal_pin=[redacted]"
