"""Tests `Redactor` with samples of secrets, ordinary texts and hostile texts."""

import ast
import json
import random
import re
import string
import sysconfig
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from llm_common.agents import Redactor
from llm_common.errors import ConfigError
from llm_common.redaction.patterns import MAX_UNITS, REDACTED, TOKEN_SHAPES, Work
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.text.canonical import Json
from tests.secret_samples import FORMS, ORDINARY, SAMPLES, TOKENS, Sample

CANARY = "hunter2-CANARY-9f3a7c51"
redact_text = DEFAULT_REDACTOR.text


def leaks(redact: Callable[[str], str], sample: Sample) -> list[str]:
    redacted = redact(sample.text)
    return [secret for secret in sample.secrets if secret and secret in redacted]


def assert_all(predicate: Callable[[Sample], bool], samples: Iterable[Sample] = SAMPLES) -> None:
    """Assert that a predicate holds for all samples, and name those for which it does not."""
    assert [sample.name for sample in samples if not predicate(sample)] == []


def test_data_loses_the_same_secrets_as_its_texts() -> None:
    def is_redacted_alike(sample: Sample) -> bool:
        fillers = ("see https://a.example/b", "-" * 99, "nothing")
        data: Any = {filler: f"{filler} {sample.text} {filler}" for filler in fillers}
        redacted = DEFAULT_REDACTOR.data(data)
        return redacted == {key: redact_text(text) for key, text in data.items()}

    assert_all(is_redacted_alike)


def test_secrets_of_known_shape_are_redacted_s0_07_f_177() -> None:
    def is_redacted_once(sample: Sample) -> bool:
        redacted = redact_text(sample.text)
        return (
            not leaks(redact_text, sample)
            and REDACTED in redacted
            and redact_text(redacted) == redacted
        )

    assert_all(is_redacted_once)


@pytest.mark.parametrize(
    "template",
    ["before {} after", "/{}/", '"{}"', "a,{},b", "\n{}\n", "{}{}", "é{}", "({})", "<{}>", "*{}*"],
)
def test_a_shape_is_recognised_anywhere_in_a_text(template: str) -> None:
    assert_all(
        lambda sample: not leaks(lambda text: redact_text(template.replace("{}", text)), sample),
        TOKENS,
    )


@pytest.mark.parametrize(
    "step",
    [pytest.param(197, id="a_16"), pytest.param(1, id="a_16_all", marks=pytest.mark.torture)],
)
def test_redacted_source_code_parses(step: int) -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    paths = sorted(path for path in folder.rglob("*.py") if "site-packages" not in path.parts)
    for path in paths[::step]:
        with suppress(SyntaxError, UnicodeDecodeError):
            source = path.read_text(encoding="utf-8")
            compile(source, str(path), "exec", flags=ast.PyCF_ONLY_AST, dont_inherit=True)
            redacted = redact_text(source)
            if redacted != source:
                ast.parse(redacted, str(path))


def test_the_documentation_lists_every_service() -> None:
    text = (Path(__file__).parents[2] / "docs" / "secrets.md").read_text(encoding="utf-8")
    assert [shape.name for shape in TOKEN_SHAPES if shape.name not in text] == []


PEM = "-----BEGIN PRIVATE KEY-----\n" + "aB3x9Q" * 11 + "\n-----END PRIVATE KEY-----"
PPK = "Private-Lines: 2\n" + "aB3x9Q" * 11 + "\n" + "bC4y0R" * 11 + "\n"


@pytest.mark.parametrize(
    ("code", "redacted"),
    [
        (f"k = '''{PEM}'''  # a\n\nb = 1\n", f"k = '''{REDACTED}'''  # a\n\n\n\nb = 1\n"),
        (f"{PEM} {PEM}\nb\nc", f"{REDACTED} {REDACTED}\n\n\n\n\nb\nc"),
        (f"{PPK}# a\nb", f"Private-Lines: 2\n{REDACTED}\n\n# a\nb"),
        (PEM, REDACTED),
        (
            f'api_key = "{TOKENS[0].secrets[0]}"\npassword = "correct horse 42!"\n',
            f'api_key = "{REDACTED}"\npassword = "correct horse 42!"\n',
        ),
    ],
    ids=["a string", "two in a line", "lines", "a key alone", "the value of a name"],
)
def test_shapes_keeps_values_and_the_numbers_of_lines(code: str, redacted: str) -> None:
    assert DEFAULT_REDACTOR.shapes(code) == redacted
    assert DEFAULT_REDACTOR.shapes(redacted) == redacted


@pytest.mark.parametrize("lone", ["\ud800", "\udfff\ud800"])
def test_a_lone_surrogate_hides_no_secret(lone: str) -> None:
    assert_all(lambda sample: not leaks(lambda text: redact_text(f"{lone} {text} {lone}"), sample))


def test_every_shape_has_a_source_and_a_sample() -> None:
    assert len(TOKENS) >= 60
    assert len(FORMS) >= 50
    assert len(SAMPLES) >= 240
    assert len(ORDINARY) >= 126
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES)
    for shape in TOKEN_SHAPES:
        assert "." in shape.source
        assert any(prefix in sample.text for prefix in shape.prefixes for sample in TOKENS), (
            shape.name
        )


def test_ordinary_text_is_unchanged_f_176() -> None:
    assert [redact_text(text) for text in ORDINARY] == list(ORDINARY)
    texts: Any = {"text": list(ORDINARY)}
    assert DEFAULT_REDACTOR.data(texts) == texts


SECRET_NAMES = (
    "api_key apikey X-API-Key apiKey access_token refreshToken token client.secret PASSWORD passwd "
    "Authorization signature sig aws_credential Set-Cookie private_key password_hash auth "
    "password2 api_keys otp --api-key"
)
OTHER_NAMES = (
    "max_tokens token_type secretary design keyword ticker key author compass passage monkey "
    "sha256 authority auth_mode"
)


@pytest.mark.parametrize(
    ("names", "is_secret"),
    [
        ([*SECRET_NAMES.split(), "SECRET ACCESS KEY", "x" * 500 + "_token"], True),
        ([*OTHER_NAMES.split(), ""], False),
    ],
)
def test_a_secret_name_is_recognised(names: list[str], is_secret: bool) -> None:
    for name in names:
        assert DEFAULT_REDACTOR.is_secret_key(name) is is_secret, name


@pytest.mark.parametrize(
    ("args", "redacted"),
    [
        pytest.param(
            {
                "query": f"see https://u:{CANARY}@h/",
                "headers": {"X-Api-Key": CANARY, "Accept": "json"},
                "list": [{"password": {"nested": CANARY}}],
                "command": ["deploy", "--password", CANARY, "--port", "80"],
                "limit": 5,
                "token": None,
                "secret": True,
                "pwd": 1234,
                f"sk-{CANARY}": 1,
            },
            {
                "query": f"see https://{REDACTED}@h/",
                "headers": {"X-Api-Key": REDACTED, "Accept": "json"},
                "list": [{"password": {"nested": REDACTED}}],
                "command": ["deploy", "--password", REDACTED, "--port", "80"],
                "limit": 5,
                "token": None,
                "secret": True,
                "pwd": REDACTED,
                REDACTED: 1,
            },
            id="any depth",
        ),
        pytest.param(
            {
                "ids": ["abc", "4749c97db3c4"],
                "key": "x",
                "pairs": [["password", "4749c97db3c4"], ["city", "Oslo"]],
            },
            {
                "ids": ["abc", "4749c97db3c4"],
                "key": "x",
                "pairs": [["password", REDACTED], ["city", "Oslo"]],
            },
            id="a list of two after a secret name only",
        ),
        pytest.param(
            {f"sk-{CANARY}{number}": number for number in range(3)},
            {REDACTED: 0, f"{REDACTED} 2": 1, f"{REDACTED} 3": 2},
            id="keys stay distinct",
        ),
    ],
)
def test_data_lose_their_secrets_f_177(args: dict[str, Json], redacted: dict[str, Json]) -> None:
    assert DEFAULT_REDACTOR.args(args) == redacted
    assert DEFAULT_REDACTOR.data(args) == redacted


ROW = {"password": CANARY, "n": 1}
JSON_TEXT = json.dumps({"rows": [ROW], "text": f"api_key={CANARY}", "big": 10**30})


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        pytest.param(JSON_TEXT, JSON_TEXT.replace(CANARY, REDACTED), id="JSON"),
        pytest.param(
            json.dumps({"body": JSON_TEXT, "status": 200}),
            json.dumps({"body": JSON_TEXT.replace(CANARY, REDACTED), "status": 200}),
            id="JSON in JSON",
        ),
        pytest.param(
            "12:00 "
            + json.dumps(
                {
                    "a": {
                        "token": 12,
                        "secrets": {"x": [CANARY, "}"]},
                        "password": f'{CANARY} "q" \\',
                    }
                }
            ),
            "12:00 "
            + json.dumps(
                {"a": {"token": 12, "secrets": {"x": [REDACTED, "}"]}, "password": REDACTED}}
            ),
            id="JSON in a line",
        ),
        pytest.param(
            "\n".join(("aB3x9Q" * 11)[offset:][:60] for offset in range(6))
            + "==\n-----END RSA PRIVATE KEY-----\nafter",
            f"{REDACTED}\nafter",
            id="the second page of a private key",
        ),
        pytest.param(
            "kUx4Zb1Qq9Lr0sTd7vWe3g==\n-----END RSA PRIVATE KEY-----\nnext",
            f"{REDACTED}\nnext",
            id="a few characters before the end of a private key",
        ),
        pytest.param(
            f"a=1&b=password%3D{'aB3x9Qz7' * 100}&c=1",
            f"a=1&b=password%3D{REDACTED}&c=1",
            id="a long percent-encoded secret",
        ),
        pytest.param(
            'token: {\\"a\\": {}, \\"b\\": \\"q7Zp9Xk2Lm4V\\"} and "q7Zp9Xk2Lm4V" after',
            f'token: {{\\"a\\": {{}}, \\"b\\": \\"{REDACTED}\\"}} and "q7Zp9Xk2Lm4V" after',
            id="an escaped quote opens no string",
        ),
        *(
            pytest.param(
                f"{name}: theme=dark-blue\nAccept: json",
                f"{name}: {REDACTED}\nAccept: json",
                id=f"all of {name}",
            )
            for name in ("Cookie", "Set-Cookie", "cookie2")
        ),
    ],
)
def test_all_but_the_secret_stays_in_a_text_f_177(text: str, redacted: str) -> None:
    assert redact_text(text) == redacted


def test_data_without_secrets_is_not_copied() -> None:
    data: Any = {"rows": [{"id": 1, "name": "lorem"}]}
    assert DEFAULT_REDACTOR.data(data) is data
    # JSON escapes these characters. They hide no name.
    controls: Any = ["a\x00b\x1f"]
    assert DEFAULT_REDACTOR.data(controls) is controls


def test_callers_can_add_patterns_and_names() -> None:
    redactor = Redactor(
        extra_patterns=(r"EMP-\d{6}", re.compile(r"badge (?P<secret>\w+)")),
        extra_keys=("internal_pin", "Losung"),
    )
    assert redactor.text("EMP-123456, badge x9, internalPin=77, the losung: auf, pin=1") == (
        f"{REDACTED}, badge {REDACTED}, internalPin={REDACTED}, the losung: {REDACTED}, pin=1"
    )
    assert redactor.args({"user": {"INTERNAL-PIN": 77, "pin": 1}}) == {
        "user": {"INTERNAL-PIN": REDACTED, "pin": 1}
    }
    assert redactor.text(f"token={CANARY}") == f"token={REDACTED}"
    assert hash(redactor) != hash(DEFAULT_REDACTOR)
    assert Redactor(extra_patterns=("x",)) == Redactor(extra_patterns=("x",))


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_cut_secret_is_not_shown(cut: int) -> None:
    text = f"{'word ' * 20}ghp_{'aB3' * 12} tail {'more ' * 400}"
    beginning = DEFAULT_REDACTOR.beginning(text, max_chars=100 + cut)
    assert "aB3" not in beginning
    assert len(beginning) <= 100 + cut
    assert "aB3" not in DEFAULT_REDACTOR.beginning(
        f"{'password=' + 'x' * 300 + ' '}ghp_{'aB3' * 200}", max_chars=290
    )


@pytest.mark.parametrize("size", [100, 300, 500, 600])
def test_a_beginning_shows_no_cut_secret_after_a_redacted_one_f_177(size: int) -> None:
    text = f"token={'aB3x7' * (size // 5)} {'word ' * 200}"
    beginning = DEFAULT_REDACTOR.beginning(text, max_chars=200)
    assert len(beginning) <= 200
    assert "aB3" not in beginning
    end = f"token={'aB3x7' * 120} {'word ' * 39}sk-{'cD4z8' * 40}"
    for chars in range(4, 30):  # characters read of the last secret, too few to recognise it
        assert "cD4" not in DEFAULT_REDACTOR.beginning(
            end, max_chars=end.index("sk-") + chars - 512
        )


def test_an_escaped_letter_hides_no_secret_name_f_177() -> None:
    for text in (r"see p\u0061ssword=hunter2CANARY9f ok", r'{"p\u0061ssword": "hunter2CANARY9f"}'):
        assert "CANARY" not in redact_text(text)
        assert "CANARY" not in str(DEFAULT_REDACTOR.args({"text": text}))


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        *[("pwd", 1000, True), ("pwd", 999, False), ("pwd", True, False), ("pwds", 1234, False)],
        *[("passwords", 1234, False), ("password", 1234, True), ("password", "Zx7q", True)],
    ],
)
def test_pins_are_redacted_and_counts_are_not_s0_07(name: str, value: object, secret: bool) -> None:
    assert DEFAULT_REDACTOR.is_secret(name, value) is secret
    assert DEFAULT_REDACTOR.args({name: value}) == {name: REDACTED if secret else value}


@pytest.mark.parametrize(
    "template", ['{{"password": {}}}', '12:00 {{"pass": {}}}', "password = {}"]
)
def test_few_random_passwords_look_harmless_s0_07(template: str) -> None:
    choices = random.Random(1).choices
    characters = string.ascii_letters + string.digits + string.punctuation
    texts = [template.format(json.dumps("".join(choices(characters, k=16)))) for _ in range(2_000)]
    assert sum(redact_text(text) == text for text in texts) <= 20


@pytest.mark.parametrize(
    "value",
    [
        *("********", "0000", "<password>", "[hidden]", "(not shown)", "sk-...", "::::"),
        *("$DB2_PASSWORD", "$password", "${DB_PASSWORD}-1", "$(cat x)", "{{ password }}"),
        *("{user}-1x", "%(user)s:%(password)s", "%PASSWORD%", "@PASSWORD@", "0x1F", "2025-01-02"),
        *("/run/secrets/db2", "/app", "~/.ssh/id_rsa2", "./key1", "C:\\keys", "certs/server.pem"),
        *("vault://a/b1", "arn:aws:x1", "vault.example:8200", "CharField(max_length=128)"),
        *("rows[0]", "env.DB_PASSWORD1", "process.env.PASS"),
    ],
)
def test_harmless_forms_stay_in_data_and_between_quotes_f_176(value: str) -> None:
    for name in ("password", "pass"):
        assert DEFAULT_REDACTOR.args({name: value}) == {name: value}
        for text in (f'{{"{name}": {json.dumps(value)}}}', f"x = 1\n{name} = '{value}'\n"):
            assert redact_text(text) == text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.sampled_from(ORDINARY),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)


def keys_of(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for item in value.values() for key in keys_of(item))]
    return [key for item in value for key in keys_of(item)] if isinstance(value, list) else []


def surviving_secrets(value: Any, sample: Sample, levels: int) -> list[str]:
    holder: Any = {"data": value, "samples": [sample.text]}
    for _ in range(levels):
        holder = {"body": json.dumps(holder)}
    redacted = DEFAULT_REDACTOR.args(holder)
    text = json.dumps(redacted)
    for _ in range(levels):
        redacted = json.loads(str(redacted["body"]))
    assert list(redacted) == ["data", "samples"]
    assert len(keys_of(redacted["data"])) <= len(keys_of(value))
    return [secret for secret in sample.secrets if secret and json.dumps(secret)[1:-1] in text]


@given(values, st.sampled_from(SAMPLES), st.integers(0, 2))
def test_no_secret_survives_at_any_depth(value: Any, sample: Sample, levels: int) -> None:
    assert not surviving_secrets(value, sample, levels)


@pytest.mark.torture
@settings(max_examples=20_000, deadline=None)
@given(values, st.sampled_from(SAMPLES), st.integers(0, 2))
def test_no_secret_survives_at_any_depth_l16(value: Any, sample: Sample, levels: int) -> None:
    assert not surviving_secrets(value, sample, levels)


@given(
    st.text(st.sampled_from("abk=@:/?&\"'\\ -ey.J\n"), max_size=60),
    st.sampled_from(["token=", "password: "]),
)
def test_a_named_secret_is_redacted_after_any_noise(noise: str, name: str) -> None:
    assert CANARY not in redact_text(f"{noise} {name}{CANARY}")


@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redacted = redact_text(text)
    assert redact_text(redacted) == redacted


def test_a_secret_is_found_anywhere_in_a_long_text() -> None:
    filler = "lorem ipsum dolor sit amet, " * 21_000
    pem = next(sample for sample in TOKENS if sample.name.startswith("PEM"))
    for position in (0, 262_130, 327_670, len(filler)):  # next to the borders of windows
        for sample in (TOKENS[0], FORMS[0], FORMS[5], pem):
            text = f"{filler[:position]}\n{sample.text}\n{filler[position:]}"
            assert leaks(redact_text, Sample("", text, sample.secrets)) == []
    key = f"-----BEGIN RSA PRIVATE KEY-----{'aB3 ' * 100_000}"
    assert redact_text(f"{key}-----END RSA PRIVATE KEY----- after") == f"{REDACTED} after"


@pytest.mark.parametrize("name", ["token=", "sig:", "cookie: ", "token%3D"])
def test_a_value_of_many_names_is_redacted_from_the_ninth_on(name: str) -> None:
    assert redact_text(name * 8) == name * 8
    redacted = redact_text(name * 1_000)
    assert REDACTED in redacted
    assert len(redacted) < 12 * len(name) + len(REDACTED)


def test_terminal_colours_hide_no_secret() -> None:
    for sample in (*TOKENS[::7], Sample("", "password: hunter2-CANARY", ("hunter2-CANARY",))):
        assert leaks(redact_text, Sample("", f"\x1b[31m{sample.text}\x1b[0m", sample.secrets)) == []


HOSTILE = (
    "eyJ",
    "-eyJ",
    "eyJaaaaaaaa.",
    "://",
    "://a:",
    "://a:b@",
    "://a@",
    "Basic ",
    "bearer a1",
    "sk-",
    "sk-a",
    "\\",
    'token:"',
    "token:'",
    "token:\\'",
    'token\\":\\"',
    "token=",
    "token=a,a",
    'token=a"',
    "token:,",
    "token:[",
    "key ",
    '"token": str = ',
    "password:\n  ",
    'password:{"',
    "authorization:",
    "'authorization: ",
    "cookie: a\n",
    "--a-",
    "--token ",
    '--token "',
    "login ",
    "login a password ",
    "-----BEGIN PRIVATE KEY-----",
    "Private-Lines: 1\n",
    "-----BEGIN PRIVATE KEY-----\n-----END ",
    "1234567890:AA",
    "MTIz",
    "Ma.",
    "?key=",
    "&key=a",
    "=",
    "a",
    "a.",
    "{",
    "<password>",
    '"token","',
    "name: token value: ",
    "|token|a|\n",
    "token,",
    "password%3D",
    "ENV token ",
    "\\nkey,",
    "sig:",
    "cookie: ",
    "aa%3D",
    "token%3D:a:a",
    'token: [{"' + '\\"' * 500,
    "-----END PRIVATE KEY-----",
    "secrets: [",
    "password:{a1B2c3D4e5",
    "password=a(b",
    "sshpass ",
    "requirepass ",
    "-us1",
    "0123456789abcdef",
    "-u a:",
    '["',
    '{"token":',
    "\\u0041 token=",
    "token" + " " * 50,
    "x" * 95 + "=",
    *(shape.prefixes[0] for shape in TOKEN_SHAPES[::8]),
)
HOSTILE_BEGINNINGS = [shape.prefixes[0] for shape in TOKEN_SHAPES]


@pytest.mark.parametrize(
    "unit",
    [
        *("token = {", " pass:", "'password:", "secret=a ", "--token a ", "sig%3Dabcd "),
        *('"token","abcd" ', "-u a:bcde ", "secret={ab cd1x}"),
    ],
)
def test_text_too_dense_to_be_checked_is_cut_and_says_so(unit: str) -> None:
    dense = unit * (200_000 // len(unit))
    redacted = redact_text(f"{dense}password=hunter2x\n  hunter3x\nthe next line\n")
    assert re.search(r"\[redacted: [\d,]+ characters, too dense to be checked\]", redacted)
    assert "hunter" not in redacted
    assert redacted.endswith("the next line\n")


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"token list: {unit * (200_000 // len(unit))}"
            for unit in ("--output a.txt ", "--api-version 2 ", '("name", "abcd") ')
        ),
        "token=a sig=b cookie=c auth=d " * 100,
        "10:00 login ok user=ann token=1234 ip=10.0.0.1 session=7\n" * 4_000,
    ],
    ids=["options", "versions", "pairs", "names with separate values", "a log full of names"],
)
def test_many_names_without_secrets_are_no_dense_text_a_16(text: str) -> None:
    assert redact_text(text) == text


def test_brackets_of_too_many_words_are_cut_at_the_limit_a_16() -> None:
    # 440 words in each pair of brackets: the limit of a stretch is reached within one.
    brackets = f"secrets: [{'harmless ' * 440}{CANARY}]\n"
    redacted = redact_text(brackets * 15)
    assert redacted.startswith(f"secrets: [{'harmless ' * 440}{REDACTED}]\n")
    assert re.search(r"harmless \[redacted: [\d,]+ characters, too dense to be checked\]", redacted)
    assert CANARY not in redacted


def test_a_table_of_many_short_lines_is_cut_and_goes_on() -> None:
    rows = "1,\n" * 25_000
    redacted = redact_text(f"password,b\n{rows}hunter2x,4\n")
    # One unit a line, after three for the name.
    cut = "[redacted: 47,103 characters, too dense to be checked]"
    assert redacted.startswith(f"password,b\n{rows[: 3 * 6_141]}{cut}1,\n")
    assert redacted.endswith(f"\n1,\n{REDACTED},4\n")
    headers = redact_text("token,b\n1,\n" * 20_000)
    assert re.search(r"\n\[redacted: [\d,]+ characters, too dense to be checked\]", headers)


def test_the_texts_of_a_result_share_the_limit_of_a_stretch() -> None:
    texts: Any = ["password: x"] * 10_000
    redacted: Any = DEFAULT_REDACTOR.data(texts)
    cut = "[redacted: 11 characters, too dense to be checked]"
    # A name takes three units and its value one. The next stretch begins with the 5,958th text.
    assert redacted == (texts[:1_536] + [cut] * 4_421 + texts[:1_536] + [cut] * 2_507)
    assert DEFAULT_REDACTOR.data(texts) == redacted
    harmless: Any = ["word: x"] * 10_000 + ["password: hunter2x"]
    redacted = DEFAULT_REDACTOR.data(harmless)
    assert redacted == [*harmless[:-1], f"password: {REDACTED}"]


def test_a_result_has_a_limit_of_work_too() -> None:
    work = Work()
    work.begin_text("a" * 70_000_000)
    for stretch in range(1_000):
        assert not work.is_too_much(stretch * 65_536, 4_000)
    assert MAX_UNITS == 4_000_000
    assert not work.is_over()
    text = f"{'a' * 70_000}\n{'b' * 70_000}"
    assert work.unchecked_end(text, 3) == 70_001
    assert work.is_too_much(65_536_000)
    assert work.is_over()
    assert work.unchecked_end(text, 3) == 140_001


def test_each_row_counts_the_characters_of_its_keys_a_16() -> None:
    rows: Any = [{"k" * 60: "token=a"} for _ in range(5_000)]
    assert DEFAULT_REDACTOR.data(rows) == rows


def cpu_s(text: str, redact: Callable[[str], object] = redact_text) -> float:
    start = time.process_time()
    redact(text)
    return time.process_time() - start


def is_linear(unit: str, chars: int, limit_s: float) -> bool:
    small, large = (unit * (size // len(unit)) for size in (chars // 4, chars))
    # Load slows some measurements down. A pattern that takes quadratic time fails all of them.
    return any(cpu_s(large) < limit_s + 8 * cpu_s(small) for _ in range(6))


def test_hostile_text_takes_linear_time() -> None:
    assert [unit for unit in HOSTILE if not is_linear(unit, 12_000, 0.01)] == []


@pytest.mark.torture
@pytest.mark.parametrize("unit", dict.fromkeys([*HOSTILE, *HOSTILE_BEGINNINGS]))
def test_a_megabyte_of_hostile_text_takes_seconds(unit: str) -> None:
    assert is_linear(unit, 1_000_000, 0.01)
    # Three times what the worst took in 2026, since load slows a processor down too.
    assert min(cpu_s(unit * (1_000_000 // len(unit))) for _ in range(2)) < 2.0


def test_open_quotes_in_a_long_line_take_linear_time() -> None:
    assert is_linear('token:"' + "x " * 2_100, 2_000_000, 0.01)
    line = f'password: "{"aB3x9Qz7k " * 1_000}tail'
    assert redact_text(f"{line}\nnext") == f'password: "{REDACTED}\nnext'


def test_thousands_of_secret_keys_take_linear_time() -> None:
    def redact(keys: str) -> object:
        return DEFAULT_REDACTOR.args(dict.fromkeys(keys.split(), 1))

    small, large = (
        " ".join(f"sk-aB3x9Qz7{number:08}" for number in range(count)) for count in (1_000, 4_000)
    )
    assert any(cpu_s(large, redact) < 0.01 + 8 * cpu_s(small, redact) for _ in range(6))


def test_an_escape_of_an_escape_is_no_recursion() -> None:
    texts = [r"\u0041"]
    for _ in range(3_000):
        texts.append(texts[-1].replace("0", r"\u0030", 1))
    assert redact_text(f"{texts[-1]} password=hunter2x") == f"{texts[-2]} password={REDACTED}"


@pytest.mark.parametrize("name", ["пароль", "密码", "42", ""])
def test_a_name_that_would_match_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"The name '{name}' in extra_keys .* extra_patterns"):
        Redactor(extra_keys=("internal_pin", name))
