import ast
import asyncio
import copy
import importlib
import inspect
import pickle
import re
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest

import llm_common
from llm_common import errors
from llm_common._threads import in_tool_thread
from llm_common.agents import (
    ContextPointer,
    FileContextPointerStore,
    PromptBundle,
    TokenBudget,
    ToolCall,
    ToolRegistry,
    fit,
)
from llm_common.core import UpperBoundCounter, ask
from llm_common.core.http.external_errors import error_of_status
from llm_common.core.http.transport import error_of_exception
from llm_common.pointers.run_lease import only_run
from llm_common.storage import FileBlobStore
from llm_common.storage.files import translate_os_errors
from llm_common.testing import ScriptedClient
from tests.programs import printed

FACTS: dict[str, dict[str, object]] = {
    "ConfigError": {"variable": "X", "value": "y"},
    "LLMTimeoutError": {"timeout_s": 1.5},
    "LLMStatusError": {"status": 500, "body": "b"},
    "LLMAuthError": {"status": 401, "body": "b"},
    "LLMRateLimitError": {"status": 429, "body": "b", "retry_after_s": 2.0},
    "ModelNotFoundError": {"status": 404, "body": "b"},
    "ContextTooLongError": {"status": 413, "body": "b"},
    "MalformedReplyError": {"reason": "empty", "reply": "r"},
    "CostLimitError": {"spent_usd": 1.0, "limit_usd": 0.5},
    "PointerNotFoundError": {"reason": "expired"},
    "ToolError": {"tool": "t"},
    "UnknownToolError": {"tool": "t"},
    "ToolArgumentsError": {"tool": "t"},
    "ToolFailedError": {"tool": "t"},
    "ServerDownError": {"tool": "t", "server": "s", "retry_after_s": 1.5},
    "TokenBudgetError": {"needed_tokens": 2, "limit_tokens": 1},
}


def make(name: str) -> errors.LLMCommonError:
    error = getattr(errors, name)("what happened", **FACTS.get(name, {}))
    assert isinstance(error, errors.LLMCommonError)
    return error


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_survives_pickling_and_copying_with_its_attributes(
    name: str, copied: Callable[[Any], Any]
) -> None:
    error = make(name)
    twin = copied(error)
    assert type(twin) is type(error)
    assert str(twin) == "what happened"
    assert vars(twin) == vars(error)
    assert FACTS.get(name, {}).items() <= vars(twin).items()
    assert twin.args == error.args


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ConfigError", ValueError),
        ("InvalidIdError", ValueError),
        ("PointerNotFoundError", KeyError),
    ],
)
def test_an_error_is_also_the_builtin_that_callers_already_catch(
    name: str, builtin: type[Exception]
) -> None:
    assert isinstance(make(name), builtin)


def test_every_error_is_public_and_drawn() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.LLMCommonError):
            assert name in errors.__all__
            assert re.search(rf"\b{name}\b", errors.__doc__ or ""), name


CANARY = "hunter2-CANARY-9f3a7c51"
WAYS_OUT = frozenset(
    (
        *(
            "add",
            "allow",
            "ask",
            "call",
            "change",
            "check",
            "choose",
            "close",
            "copy",
            "correct",
            "drop",
            "end",
        ),
        *(
            "flatten",
            "free",
            "give",
            "go",
            "have",
            "install",
            "keep",
            "leave",
            "let",
            "list",
            "look",
            "lower",
            "make",
        ),
        *(
            "move",
            "name",
            "pass",
            "pip",
            "put",
            "raise",
            "read",
            "remove",
            "rename",
            "rephrase",
            "restore",
            "return",
            "save",
        ),
        *(
            "see",
            "send",
            "set",
            "shorten",
            "store",
            "take",
            "try",
            "turn",
            "upgrade",
            "use",
            "wait",
        ),
    )
)
_CLAUSE = re.compile(r"(?:[;:]|[,.] (?=or |to |[A-Z])) ?(?:or |and |to |else |please )?([A-Za-z]+)")


def says_what_to_do(text: str) -> bool:
    """Return whether a later clause of a text begins with an imperative that helps."""
    return any(verb.lower() in WAYS_OUT for verb in _CLAUSE.findall(text))


def literal(node: ast.expr, module: object) -> str | None:
    """Return the text of an expression as far as the source contains it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and isinstance(getattr(module, node.id, None), str):
        return str(getattr(module, node.id))
    if isinstance(node, ast.JoinedStr):
        values = [
            part.value if isinstance(part, ast.FormattedValue) else part for part in node.values
        ]
        return "".join(literal(value, module) or "…" for value in values)
    return None


def texts_of_errors() -> dict[str, str]:
    """Collect every error text in the package's source, by its location."""
    package = Path(llm_common.__file__).parent
    found: dict[str, str] = {}
    for path in sorted(package.rglob("*.py")):
        name = ".".join(
            ("llm_common", *path.relative_to(package).with_suffix("").parts)
        ).removesuffix(".__init__")
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            # hooks import a framework, which only their own environment has
            if not name.startswith("llm_common.integrations."):
                raise
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in errors.__all__
            ):
                text = literal(node.args[0], module) if node.args else None
                # a variable ends it, and is checked for itself
                if text is not None and not text.endswith("…"):
                    found[f"{name}:{node.lineno}"] = text
        for texts in ("_FAULTS", "_MISSES"):
            found |= {f"{name}:{key}": text for key, text in getattr(module, texts, {}).items()}
    return found


def test_every_error_text_says_what_to_do() -> None:
    texts = texts_of_errors()
    assert len(texts) > 100
    assert {
        place: text for place, text in texts.items() if not says_what_to_do(text.removeprefix("…"))
    } == {}


def pointer(**changes: Any) -> ContextPointer:
    facts = {
        "pointer_id": "0" * 12,
        "query_id": "q",
        "tool_name": "t",
        "created_at": "",
        "summary": "",
        "result_path": "",
    }
    return ContextPointer(**(facts | changes))


def measure(text: str) -> str:
    """Fail with the text of the argument."""
    raise RuntimeError(text)


class Objects:
    """The objects that raise. Each method produces an error through public code."""

    def __init__(self, folder: Path) -> None:
        self.store = FileContextPointerStore(
            folder / "base", durability="rename", max_result_bytes=1_000
        )
        self.registry = ToolRegistry([measure])
        self.folder = folder

    async def save(self, **changes: Any) -> ContextPointer:
        call = {
            "query_id": "q",
            "task_id": None,
            "tool_name": "t",
            "args": {"a": CANARY},
            "result": CANARY,
        } | changes
        return await self.store.save(**call)

    async def damage(self) -> object:
        saved = await self.save()
        Path(saved.result_path).write_text(f'"{CANARY}"' + " ", encoding="utf-8")  # noqa: ASYNC240 - a test
        return self.store.load_result(pointer=saved)

    async def lock(self) -> object:
        blobs = FileBlobStore(self.folder / "base", lock_timeout_s=0.01)
        with blobs.lock("q"), blobs.lock("q"):
            return None

    async def model(self, reply: Any) -> object:
        return await ask(
            ScriptedClient([reply]), [], reply_model=ToolCall, model=None, timeout_s=0.05
        )

    async def full(self) -> object:
        with translate_os_errors("write", "base/q"):
            raise OSError(28, CANARY, CANARY)

    async def refused(self) -> object:
        with translate_os_errors("write", "base/q"):
            raise OSError(5, CANARY, CANARY)

    async def run_twice(self) -> None:
        call = {"session_id": "s", "query_id": "q"}
        async with only_run(self.store, **call), only_run(self.store, **call):
            return

    async def no_thread(self) -> object:
        with patch.object(Thread, "start", side_effect=RuntimeError(CANARY)):
            return await in_tool_thread(measure, CANARY)


async def raised(error: errors.LLMCommonError) -> object:
    raise error


REAL: dict[str, Callable[[Objects], Awaitable[object]]] = {
    "InvalidIdError": lambda use: use.save(query_id="../x", args={CANARY: CANARY}),
    "UnsafePathError": lambda use: asyncio.to_thread(
        use.store.load_result, pointer=pointer(pointer_id="/x")
    ),
    "PointerNotFoundError": lambda use: asyncio.to_thread(use.store.load_result, pointer=pointer()),
    "CorruptPointerError": lambda use: use.damage(),
    "UnserialisableError": lambda use: use.save(args={"password": CANARY, CANARY: iter("")}),
    "ResultTooLargeError": lambda use: use.save(result=CANARY * 1_000),
    "StoreFullError": lambda use: use.full(),
    "StoreError": lambda use: use.refused(),
    "LockTimeoutError": lambda use: use.lock(),
    "UnknownToolError": lambda use: use.registry.execute("measures", {"text": CANARY}),
    "ToolArgumentsError": lambda use: use.registry.execute(
        "measure", {"text": [CANARY], "password": CANARY}
    ),
    "ToolFailedError": lambda use: use.registry.execute("measure", {"text": CANARY}),
    "MalformedReplyError": lambda use: use.model(f'{{"password": "{CANARY}"}}'),
    "LLMTimeoutError": lambda use: use.model(lambda _: asyncio.sleep(5, CANARY)),
    "LLMError": lambda use: use.model(ValueError(CANARY)),
    "LLMConnectionError": lambda _: raised(error_of_exception(ValueError(CANARY), timeout_s=1)),
    "LLMStatusError": lambda _: raised(error_of_status(500, CANARY)),
    "LLMAuthError": lambda _: raised(error_of_status(401, CANARY)),
    "LLMRateLimitError": lambda _: raised(error_of_status(429, CANARY, retry_after="2")),
    "ModelNotFoundError": lambda _: raised(error_of_status(404, CANARY)),
    "ContextTooLongError": lambda _: raised(error_of_status(413, CANARY)),
    "NoThreadError": lambda use: use.no_thread(),
    "RunBusyError": lambda use: use.run_twice(),
    "TokenBudgetError": lambda _: asyncio.to_thread(
        fit,
        PromptBundle(tools_json_schema=f"[{CANARY}]" * 40, budget=TokenBudget(max_input_tokens=50)),
        UpperBoundCounter(),
    ),
}


@pytest.mark.parametrize("name", REAL)
async def test_a_real_error_names_the_remedy_and_hides_its_input(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.LLMCommonError) as caught:
        await REAL[name](Objects(tmp_path))
    error = caught.value
    assert type(error).__name__ == name
    assert says_what_to_do(str(error))
    texts = (str(error), repr(error), *traceback.format_exception(error, chain=False))
    assert CANARY not in "".join(texts)


def test_every_missing_extra_names_its_quoted_command() -> None:
    program = """
import sys
for name in ("bpe_openai", "numpy", "obstore", "psycopg", "psycopg_pool"):
    sys.modules[name] = None
from llm_common.core import ExactCounter
from llm_common.errors import ConfigError
from llm_common.ranking.embeddings import StaticVectors
import llm_common.agents, llm_common.memory
for use in (
    ExactCounter,
    StaticVectors,
    lambda: llm_common.agents.ObjectContextPointerStore,
    lambda: llm_common.memory.PostgresMemory,
):
    try:
        use()
    except ConfigError as exc:
        print(exc.message.partition(": ")[2])
"""
    extras = ("tokens", "embeddings", "object-store", "postgres")
    assert printed(program).splitlines() == [
        f"pip install '.[{extra}]' in a checkout, or pip install 'llm-common[{extra}] @ git+…'"
        for extra in extras
    ]


def test_real_use_raises_every_error_except_settings_costs_and_servers() -> None:
    assert errors.__all__ == sorted(
        {*REAL, "ConfigError", "CostLimitError", "LLMCommonError", "ServerDownError", "ToolError"}
    )
