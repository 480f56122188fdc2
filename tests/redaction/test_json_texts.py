"""Tests that redaction replaces secrets in a JSON text and keeps everything else of it."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llm_common.agents import FileContextPointerStore, Redactor, Tool
from llm_common.errors import LLMStatusError, ToolError, ToolFailedError
from llm_common.redaction.patterns import REDACTED
from tests.core.loopback import answer, failure, loopback

TOKEN = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
PASSWORD = "hunter2-CANARY-9f3a"
NOT_FINITE = f'{{"password":"{PASSWORD}","mean":NaN}}'
DEEP = "[" * 700 + '"password"' + "]" * 700
STRING = re.compile(r'("(?:[^"\\]|\\.)*")')
redact_text = Redactor().text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        pytest.param(
            '{"password":"SECRET","id":12345678901234567890.25,"price":0.10,"a":1,"a":2}',
            '{"password":"[redacted]","id":12345678901234567890.25,"price":0.10,"a":1,"a":2}',
            id="numbers",
        ),
        pytest.param(
            '{\n  "password" : "SECRET",\r\n\t"rows":[ 1E400, -0, NaN,-Infinity ] }\n',
            '{\n  "password" : "[redacted]",\r\n\t"rows":[ 1E400, -0, NaN,-Infinity ] }\n',
            id="white_space",
        ),
        pytest.param(
            r'{"a\/b":"\u00e9\"{[,:","p\u0061ssword":"SECRET"}',
            r'{"a\/b":"\u00e9\"{[,:","p\u0061ssword":"[redacted]"}',
            id="escapes",
        ),
        pytest.param(
            '{"password":"SECRET","password":"","password":true,"n":1}',
            '{"password":"[redacted]","password":"","password":true,"n":1}',
            id="repeated_name",
        ),
        pytest.param(
            '[{"a":"see TOKEN","a":"x"},1]', '[{"a":"see [redacted]","a":"x"},1]', id="repeated_key"
        ),
        pytest.param(
            '{"name":"x","name":"DB_PASSWORD","value":"SECRET","value":"SECRET","name":"y"}',
            '{"name":"x","name":"DB_PASSWORD","value":"[redacted]","value":"[redacted]","name":"y"}',
            id="repeated_pair",
        ),
        pytest.param(
            '{"TOKEN":1,"TOKEN":2,"n":3}', '{"[redacted]":1,"[redacted] 2":2,"n":3}', id="key"
        ),
        pytest.param('{"pwd":12345678,"n":1.0}', '{"pwd":"[redacted]","n":1.0}', id="number"),
        pytest.param(
            '["curl","-u","bob:SECRET",{"n":1.0}]',
            '["curl","-u","bob:[redacted]",{"n":1.0}]',
            id="command",
        ),
        pytest.param(
            r'{"n":1.0,"body":"{ \"password\": \"SECRET\", \"n\":1.0 }"}',
            r'{"n":1.0,"body":"{ \"password\": \"[redacted]\", \"n\":1.0 }"}',
            id="json_in_json",
        ),
        pytest.param(
            '{"n":1.0,"a":"\\ud800 password=SECRET"}',
            '{"n":1.0,"a":"\\ud800 password=[redacted]"}',
            id="lone_surrogate",
        ),
    ],
)
def test_only_the_secrets_of_a_json_text_change_f_206(text: str, redacted: str) -> None:
    text = text.replace("SECRET", PASSWORD).replace("TOKEN", TOKEN)
    assert redact_text(text) == redacted
    # Also within data, where a text may be JSON too.
    assert Redactor().args({"body": text}) == {"body": redacted}


@pytest.mark.parametrize("levels", [3, 300, 700, 5_000])
def test_no_depth_of_a_json_text_hides_a_secret_f_206(levels: int) -> None:
    secret = json.dumps({"password": PASSWORD})
    for opening, closing in ("[]", ('{"a":', "}")):
        text = opening * levels + secret + closing * levels
        assert redact_text(text) == text.replace(PASSWORD, REDACTED)
        text = json.dumps([json.dumps([text])])
        assert redact_text(text) == text.replace(PASSWORD, REDACTED)


def test_a_number_that_python_does_not_read_hides_no_secret_f_206() -> None:
    text = f'{{"password": "{PASSWORD}", "n": {"9" * 5_000}}}'
    assert redact_text(text) == text.replace(PASSWORD, REDACTED)


def files_below(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'{{"token":"{TOKEN}","token":""}}', id="repeated_name"),
        pytest.param(NOT_FINITE.replace(PASSWORD, TOKEN), id="nan"),
    ],
)
async def test_no_form_of_json_brings_a_secret_to_disk_f_177(tmp_path: Path, text: str) -> None:
    store = FileContextPointerStore(tmp_path, redact_results=True)
    pointer = await store.save(query_id="q", tool_name="t", args={"body": text}, result=text)
    redacted = text.replace(TOKEN, REDACTED)
    assert store.load_result(pointer=pointer) == redacted
    assert TOKEN not in pointer.model_dump_json()
    files = files_below(tmp_path)
    assert len(files) >= 2
    assert TOKEN not in "".join(files)


@pytest.mark.parametrize("text", [NOT_FINITE, DEEP], ids=["nan", "deep"])
async def test_an_endpoint_that_writes_odd_json_gets_the_usual_error_l14(text: str) -> None:
    body = json.dumps({"error": {"message": text}}).encode()
    async with loopback(answer(400, body)) as server:
        error = await failure(server.config(max_attempts=1))
    assert isinstance(error, LLMStatusError)
    assert PASSWORD not in str(error)
    assert error.endpoint_message.startswith(text[:9])


@pytest.mark.parametrize("text", [NOT_FINITE, DEEP], ids=["nan", "deep"])
async def test_a_tool_that_writes_odd_json_fails_as_usual_l14(text: str) -> None:
    async def fail() -> None:
        raise ToolError(text, tool="t")

    with pytest.raises(ToolFailedError) as caught:
        await Tool(fail, name="t").run({})
    assert PASSWORD not in str(caught.value)
    assert text[:9] in str(caught.value)


scalars = st.sampled_from(
    ["1.0", "1e400", "-0", "NaN", "true", "null", r'"\u00e9\/\""', f'"{TOKEN}"', f'"{PASSWORD}"']
)
names = st.sampled_from(['"a"', r'"p\u0061ssword"', '"name"', '"value"', '"DB_PASSWORD"'])
spaces = st.sampled_from(["", " ", "\n\t"])


def in_brackets(items: st.SearchStrategy[str], brackets: str) -> st.SearchStrategy[str]:
    def text_of(parts: list[str], space: str) -> str:
        return brackets[0] + space + f",{space}".join(parts) + space + brackets[1]

    return st.builds(text_of, st.lists(items, max_size=4), spaces)


def containers(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.builds("{}{}:{}".format, names, spaces, items)
    return in_brackets(items, "[]") | in_brackets(members, "{}")


@given(containers(st.recursive(scalars, containers, max_leaves=12)))
def test_a_redacted_json_text_differs_in_its_strings_only_f_206(text: str) -> None:
    redacted = redact_text(text)
    assert TOKEN not in redacted
    assert redact_text(redacted) == redacted
    parts, redacted_parts = STRING.split(text), STRING.split(redacted)
    assert parts[::2] == redacted_parts[::2]  # between the strings
    for part, redacted_part in zip(parts, redacted_parts, strict=True):
        assert redacted_part == part or REDACTED in redacted_part
