"""Tests both selectors with the shapes of replies that endpoints and models send.

A shape is the body of a `/chat/completions` reply around the text of a good answer, with the page
that documents it. `tools` and `pointers` say whether each selector reads the answer. A selector
that does not must fail closed, and `why` has the reason.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import httpx
import pytest

from llm_common.core import LLMConfig, OpenAICompatibleClient, extract_json
from llm_common.core.extraction import as_call, is_call, read_text_calls
from llm_common.errors import MalformedReplyError
from llm_common.selection.tool_calls import read_native_calls
from tests.selection.choosers import CHOOSERS, SOUND_CHOICE
from tests.selection.odd_replies import SOUND_CALL, SOUND_ID

WRONG_CALLS = '{"calls": [{"tool": "search_web", "args": {"query": "x"}}]}'
WRONG_IDS = '{"pointer_ids": ["bbbbbbbbbbbb"]}'
TICKS = "`" * 3


@dataclass(frozen=True)
class Shape:
    """A shape of a reply.

    Attributes:
        message: Returns the message for the answer's text, such as `{"content": text}`.
        choice: Further fields of the choice.
        payload: Replaces fields of the body.
    """

    name: str
    source: str
    message: Callable[[str], dict[str, Any]]
    tools: bool = True
    pointers: bool = True
    why: str = ""
    choice: dict[str, Any] = field(default_factory=dict)
    payload: dict[str, Any] = field(default_factory=dict)

    def is_read_by(self, kind: str) -> bool:
        return self.tools if kind == "tools" else self.pointers

    def body(self, answer: str) -> dict[str, Any]:
        """Return the body of the reply."""
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", **self.message(answer)},
        }
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        return {
            "id": "r",
            "model": "m",
            "choices": [choice | self.choice],
            "usage": usage,
        } | self.payload


def text(template: str) -> Callable[[str], dict[str, Any]]:
    """Return a message from a template, with the answer for ANSWER and a wrong one for WRONG."""

    def message(answer: str) -> dict[str, Any]:
        wrong = WRONG_IDS if "pointer_ids" in answer else WRONG_CALLS
        return {"content": template.replace("WRONG", wrong).replace("ANSWER", answer)}

    return message


def native(
    arguments: object = '{"city": "Ulm"}', name: str = "get_weather", **fields: Any
) -> dict[str, Any]:
    return {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    } | fields


def only(message: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    return lambda _: message


OPENAI = "https://platform.openai.com/docs/api-reference/chat/object"
ZAI = "https://docs.z.ai/api-reference/llm/chat-completion"
DEEPSEEK_DOCS = "https://api-docs.deepseek.com/api/create-chat-completion"
VLLM = "https://docs.vllm.ai/en/latest/features/reasoning_outputs.html"
HARMONY = "https://cookbook.openai.com/articles/openai-harmony"
GEMINI = "https://ai.google.dev/api/generate-content#FinishReason"
ANTHROPIC = "https://docs.claude.com/en/api/openai-sdk"
CALL_TEXT = '{"name": "get_weather", "arguments": {"city": "Ulm"}}'
UNMARKED = (
    "nothing marks the end of the whole: cut after the first of two calls, it would pass "
    "for a whole reply"
)
UNTYPED = "its arguments are no JSON, so that their types would have to be guessed"
NOT_THE_ANSWER = "what a server declares as thinking is not the answer"

PLAIN_SHAPES = [
    Shape("gpt plain", OPENAI, text("ANSWER"), choice={"logprobs": None}),
    Shape("gpt refusal null, annotations", OPENAI, lambda a: {"content": a, "refusal": None,
        "annotations": []}),
    Shape("content in parts", "https://docs.litellm.ai/docs/completion/input",
          lambda a: {"content": [{"type": "text", "text": a[:9]}, {"type": "text", "text": a[9:]}]}),
    Shape("output_text part", "https://platform.openai.com/docs/api-reference/responses/object",
          lambda a: {"content": [{"type": "output_text", "text": a, "annotations": []}]}),
    Shape("claude finish reason", ANTHROPIC, text("ANSWER"), choice={"finish_reason": "end_turn"}),
    Shape("tgi finish reason", "https://huggingface.co/docs/text-generation-inference/reference/api_reference",
          text("ANSWER"), choice={"finish_reason": "eos_token"}),
    Shape("no finish reason", "https://github.com/abetlen/llama-cpp-python", text("ANSWER"),
          choice={"finish_reason": None}),
    Shape("usage null", "https://github.com/lmstudio-ai/lmstudio-bug-tracker", text("ANSWER"),
          payload={"usage": None}),
    Shape("openrouter extras", "https://openrouter.ai/docs/api-reference/overview",
          lambda a: {"content": a, "reasoning": None}, choice={"native_finish_reason": "STOP"},
          payload={"provider": "Google", "usage": {"prompt_tokens": 1, "completion_tokens": 1,
              "cost": 0.1}}),
    Shape("error null", "https://github.com/UKGovernmentBEIS/inspect_ai/issues/1534", text("ANSWER"),
          payload={"error": None}),
]  # fmt: skip
THINKING = [
    Shape("glm reasoning_content", ZAI, lambda a: {"content": f"\n{a}", "reasoning_content": WRONG_CALLS}),
    Shape("deepseek reasoning_content", DEEPSEEK_DOCS, lambda a: {"content": a, "reasoning_content":
        "Hm."}),
    Shape("openrouter reasoning", "https://openrouter.ai/docs/use-cases/reasoning-tokens",
          lambda a: {"content": a, "reasoning": "Hm.", "reasoning_details": [{"type":
              "reasoning.text",
              "text":
              "H"}]}),
    Shape("qwen think", "https://github.com/vllm-project/vllm/issues/21130",
          text("<think>\nPerhaps WRONG\n</think>\n\nANSWER")),
    Shape("qwen empty think", "https://qwen.readthedocs.io/en/latest/getting_started/quickstart.html",
          text("<think>\n\n</think>\n\nANSWER")),
    Shape("qwen 2507 closing tag alone", "https://github.com/vllm-project/vllm/issues/22507",
          text("I could answer WRONG.\n</think>\n\nANSWER")),
    Shape("gemini thought", "https://ai.google.dev/gemini-api/docs/openai", text(
        "<thought>WRONG</thought>ANSWER")),
    Shape("seed-oss", "https://github.com/vllm-project/vllm/blob/main/vllm/reasoning/seedoss_reasoning_parser.py",
          text("<seed:think>WRONG</seed:think>ANSWER")),
    Shape("kimi", "https://huggingface.co/moonshotai/Kimi-VL-A3B-Thinking", text(
        "◁think▷WRONG◁/think▷ANSWER")),
    Shape("command a", "https://docs.cohere.com/docs/reasoning",
          text("<|START_THINKING|>WRONG<|END_THINKING|><|START_RESPONSE|>ANSWER<|END_RESPONSE|>")),
    Shape("gemma 4", "https://github.com/vllm-project/vllm/blob/main/vllm/reasoning/gemma4_reasoning_parser.py",
          text("<|channel>thought\nWRONG\n<channel|>ANSWER")),
    Shape("magistral text", "https://github.com/vllm-project/vllm/pull/37081", text(
        "[THINK]WRONG[/THINK]ANSWER")),
    Shape("magistral parts", "https://github.com/spring-projects/spring-ai/pull/5020",
          lambda a: {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": WRONG_CALLS}]},
                                 {"type": "text", "text": a}]}),
    Shape("claude thinking parts", "https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
          lambda a: {"content": [{"type": "thinking", "thinking": "{"}, {"type": "text", "text": a}]}),
    Shape("gpt-oss harmony", HARMONY,
          text("<|channel|>analysis<|message|>WRONG<|end|><|start|>assistant<|channel|>final<|message|>ANSWER<|return|>")),
    Shape("gpt-oss with its marks dropped", "https://github.com/vllm-project/vllm/issues/22386",
          text("analysisWe need a city.assistantfinalANSWER")),
    Shape("granite", "https://github.com/vllm-project/vllm/blob/main/vllm/reasoning/granite_reasoning_parser.py",
          text("Here is my thought process: a city.\nHere is my response: ANSWER")),
    Shape("unclosed think", VLLM, text("<think>Perhaps ANSWER"), tools=False, pointers=False, why=NOT_THE_ANSWER),
    Shape("answer in reasoning_content", "https://github.com/vllm-project/vllm/issues/17349",
          lambda a: {"content": None, "reasoning_content": a}, tools=False, pointers=False, why=NOT_THE_ANSWER),
    Shape("harmony without a final channel", HARMONY, text("<|channel|>analysis<|message|>ANSWER<|end|>"),
          tools=False, pointers=False, why=NOT_THE_ANSWER),
]  # fmt: skip
WRAPPED = [
    Shape("glm box", "https://github.com/zai-org/GLM-V", text("<|begin_of_box|>ANSWER<|end_of_box|>")),
    Shape("glm think and box", "https://huggingface.co/zai-org/GLM-4.1V-9B-Thinking",
          text("<think>WRONG</think><answer><|begin_of_box|>ANSWER<|end_of_box|></answer>")),
    Shape("hunyuan answer tags", "https://huggingface.co/tencent/Hunyuan-A13B-Instruct",
          text("<think>\nWRONG\n</think>\n<answer>\nANSWER\n</answer>")),
    Shape("claude fence and prose", ANTHROPIC, text(f"Here is the "
        f"JSON:\n\n{TICKS}json\nANSWER\n{TICKS}\n\nDone.")),
    Shape("llama end mark", "https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/",
          text("ANSWER<|eot_id|>")),
    Shape("llama python tag", "https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/",
          text("<|python_tag|>ANSWER<|eom_id|>")),
    Shape("qwen tool_call tags around it", "https://qwen.readthedocs.io/en/latest/framework/function_call.html",
          text("<tool_call>\nANSWER\n</tool_call>")),
    Shape("double output", "https://github.com/ggml-org/llama.cpp/discussions", text(
        "ANSWER\nANSWER")),
    Shape("encoded twice", "https://github.com/ollama/ollama/issues", lambda a: {"content": json.dumps(a)}),
    Shape("two different outputs", "https://github.com/ggml-org/llama.cpp/discussions", text(
        "WRONG\nANSWER"),
          tools=False, pointers=False, why="which one counts is open"),
]  # fmt: skip
CALL_SHAPES = [
    Shape("gpt tool_calls", OPENAI, only({"content": None, "tool_calls": [native()]}), pointers=False,
          choice={"finish_reason": "tool_calls"}),
    Shape("ollama arguments as an object", "https://docs.ollama.com/capabilities/tool-calling",
          only({"content": "", "tool_calls": [native({"city": "Ulm"})]}), pointers=False),
    Shape("mistral tool_calls", "https://docs.mistral.ai/capabilities/function_calling",
          only({"content": "", "tool_calls": [native(index=0)]}), pointers=False,
          choice={"finish_reason": "tool_calls"}),
    Shape("legacy function_call", OPENAI, pointers=False, choice={"finish_reason": "function_call"},
          message=only({"content": None, "function_call": {"name": "get_weather", "arguments":
              '{"city":"Ulm"}'}})),
    Shape("mistral text calls", "https://github.com/vllm-project/vllm/pull/10333",
          only({"content": f"[TOOL_CALLS] [{CALL_TEXT}]"}), pointers=False),
    Shape("granite text calls", "https://github.com/ggml-org/llama.cpp", pointers=False,
          message=only({"content": f"<|tool_call|>[{CALL_TEXT}]<|end_of_text|>"})),
    Shape("phi-4-mini text calls", "https://huggingface.co/microsoft/Phi-4-mini-instruct", pointers=False,
          message=only({"content": f"<|tool_call|>[{CALL_TEXT}]<|/tool_call|>"})),
    Shape("command text calls", "https://docs.cohere.com/docs/command-r7b-hf", pointers=False,
          message=only({"content": '<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n '
              '{"tool_call_id": "0", '
                        '"tool_name": "get_weather", "parameters": '
                        '{"city": "Ulm"}}\n]<|END_ACTION|>'})),
    Shape("deepseek v3 text calls", "https://github.com/vllm-project/vllm/issues/21727", pointers=False,
          message=only({"content": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
                        f'{TICKS}json\n{{"city": '
                        f'"Ulm"}}\n{TICKS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'})),
    Shape("deepseek v3.1 text calls", "https://github.com/sgl-project/sglang/pull/17320", pointers=False,
          message=only({"content": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
                        '{"city": "Ulm"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'})),
    Shape("kimi text calls", "https://github.com/MoonshotAI/Kimi-K2/blob/main/docs/tool_call_guidance.md",
          only({"content": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
                '<|tool_call_argument_begin|>{"city": "Ulm"}<|tool_call_end|><|tool_calls_section_end|>'}),
          pointers=False),
    Shape("qwen text calls", "https://qwen.readthedocs.io/en/latest/framework/function_call.html",
          only({"content": f"<tool_call>\n{CALL_TEXT}\n</tool_call>"}), pointers=False),
    Shape("llama call without a list", "https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/",
          only({"content": '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Ulm"}}'}),
          pointers=False),
    Shape("mistral v11 text calls", "https://github.com/vllm-project/vllm/pull/37081",
          only({"content": '[TOOL_CALLS]get_weather[ARGS]{"city": "Ulm"}'}), pointers=False),
    Shape("gpt-oss commentary call", HARMONY, tools=False, pointers=False, why=UNMARKED,
          message=only({"content": '<|channel|>commentary to=functions.get_weather '
              '<|constrain|>json<|message|>'
                        '{"city": "Ulm"}<|call|>'})),
    Shape("glm xml call", "https://huggingface.co/zai-org/GLM-4.5/blob/main/chat_template.jinja",
          only({"content": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value></tool_call>"}),
          pointers=False),
    Shape("qwen3-coder xml call", "https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct", pointers=False,
          message=only({"content": "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n"
              "</function>\n</tool_call>"})),
    Shape("qwen3-coder xml call without its last tag", "https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct",
          only({"content": "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n</function>"}),
          tools=False, pointers=False, why=UNMARKED),
    Shape("llama pythonic call", "https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_2/",
          only({"content": '[get_weather(city="Ulm")]'}), tools=False, pointers=False, why=UNTYPED),
    Shape("deepseek v3.2 dsml call", "https://github.com/sgl-project/sglang/issues/17593", tools=False, pointers=False,
          why=UNTYPED, message=only({"content": '<｜DSML｜function_calls><｜DSML｜invoke '
              'name="get_weather">'})),
    Shape("litellm json_tool_call", "https://github.com/BerriAI/litellm/issues/6741",
          lambda a: {"content": None, "tool_calls": [native(a, "json_tool_call")]}, tools=False, pointers=False,
          why="it calls a tool that was not offered"),
]  # fmt: skip
STOPPED = [
    Shape(name, source, text("ANSWER"), tools=False, pointers=False, why="the model did not finish",
          choice={"finish_reason": reason})
    for name, source, reason in [
        ("cut", OPENAI, "length"),
        ("gpt filtered", OPENAI, "content_filter"),
        ("glm filtered", ZAI, "sensitive"),
        ("glm network", ZAI, "network_error"),
        ("deepseek overloaded", DEEPSEEK_DOCS, "insufficient_system_resource"),
        ("mistral context", "https://docs.mistral.ai/api/", "model_length"),
        ("vllm aborted", "https://github.com/vllm-project/vllm/blob/main/vllm/v1/request.py",
            "abort"),
        ("gemini safety", GEMINI, "SAFETY"),
        ("gemini broken call", GEMINI, "MALFORMED_FUNCTION_CALL"),
        ("claude refusal", ANTHROPIC, "refusal"),
        ("claude pause", "https://docs.claude.com/en/api/handling-stop-reasons", "pause_turn"),
        ("bedrock guardrail", "https://docs.aws.amazon.com/bedrock/latest/APIReference/",
            "guardrail_intervened"),
    ]
]  # fmt: skip
BROKEN = [
    Shape("gpt refusal field", OPENAI, lambda a: {"content": a, "refusal": "I can't."}, tools=False, pointers=False,
          why="the model refused"),
    Shape("error in a 200", "https://github.com/UKGovernmentBEIS/inspect_ai/issues/1534", text(
        "ANSWER"), tools=False,
          pointers=False, why="an error",
          payload={"choices": None, "error": {"message": "Provider returned error", "code": 502}}),
    Shape("error as text in a 200", "https://github.com/lmstudio-ai/lmstudio-bug-tracker", text(
        "ANSWER"), tools=False,
          pointers=False, why="an error", payload={"choices": [], "error": "Model unloaded."}),
    Shape("choices null", "https://github.com/UKGovernmentBEIS/inspect_ai/issues/1534", text(
        "ANSWER"), tools=False,
          pointers=False, why="no answer", payload={"choices": None}),
    Shape("no choice", "https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter", text(
        "ANSWER"),
          tools=False, pointers=False, why="no answer", payload={"choices": []}),
    Shape("message null", OPENAI, text("ANSWER"), tools=False, pointers=False, why="no answer",
          choice={"message": None}),
    Shape("content null", "https://github.com/QwenLM/Qwen3/issues/1297", only({"content": None,
        "tool_calls": []}),
          tools=False, pointers=False, why="no answer"),
]  # fmt: skip

SHAPES = [*PLAIN_SHAPES, *THINKING, *WRAPPED, *CALL_SHAPES, *STOPPED, *BROKEN]

CONFIG = LLMConfig(base_url="http://shapes.test/v1", default_model="m", max_attempts=1)
ANSWERS = {
    "tools": json.dumps({"calls": [SOUND_CALL]}),
    "pointers": json.dumps({"pointer_ids": [SOUND_ID]}),
}


def answering(body: dict[str, Any]) -> OpenAICompatibleClient:
    stream = httpx.ByteStream(json.dumps(body).encode())
    reply = httpx.Response(200, headers={"content-type": "application/json"}, stream=stream)
    return OpenAICompatibleClient(CONFIG, transport=httpx.MockTransport(lambda _: reply))


@pytest.mark.parametrize("kind", sorted(CHOOSERS))
@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
async def test_each_shape_is_read_or_fails_closed(shape: Shape, kind: str) -> None:
    async with answering(shape.body(ANSWERS[kind])) as client:
        outcome = await CHOOSERS[kind](client)
    if shape.is_read_by(kind):
        assert (outcome.chosen, outcome.status) == (SOUND_CHOICE[kind], "ok")
    else:
        assert outcome.chosen == []
        assert outcome.status in {"error", "invalid"}


def read(content: str) -> object:
    """Return the value that `ask` reads from a text, or None if it rejects the text."""
    try:
        calls = read_text_calls(content, has_ended=True)
        if not calls and is_call(extract_json(content)):
            calls = [as_call(extract_json(content))]
        value = read_native_calls(calls) if calls else extract_json(content)
    except MalformedReplyError:
        return None
    return value if {"calls", "pointer_ids"} & value.keys() else None


MISTRAL = (
    '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "A"}}, '
    '{"name": "get_weather", "arguments": {"city": "B"}}]'
)
DEEPSEEK = (
    "<｜tool▁calls▁begin｜>"
    '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "A"}<｜tool▁call▁end｜>'
    '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "B"}<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜>"
)
KIMI = (
    "<|tool_calls_section_begin|>"
    '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "A"}<|tool_call_end|>'
    '<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "B"}<|tool_call_end|>'
    "<|tool_calls_section_end|>"
)
PLAIN = '{"calls": [{"tool": "get_weather", "args": {"city": "A"}}, {"tool": "get_weather", "args": {"city": "B"}}]}'
WHOLE_TEXTS = {"json": PLAIN, "mistral": MISTRAL, "deepseek": DEEPSEEK, "kimi": KIMI}
for read_shape, kind in product(SHAPES, ANSWERS):
    content = read_shape.message(ANSWERS[kind]).get("content")
    # Before its closing tag, this reply is prose with an answer in it. Only the finish reason says
    # that it was cut.
    is_cut_prose = read_shape.name == "qwen 2507 closing tag alone"
    if read_shape.is_read_by(kind) and not is_cut_prose and content and isinstance(content, str):
        WHOLE_TEXTS[f"{read_shape.name}, {kind}"] = content


@pytest.mark.parametrize("name", WHOLE_TEXTS)
def test_a_text_cut_at_any_byte_is_read_in_full_or_rejected_f_087(name: str) -> None:
    content = WHOLE_TEXTS[name].encode()
    whole = read(content.decode())
    assert whole is not None
    for cut in range(len(content)):
        assert read(content[:cut].decode(errors="replace")) in (None, whole)


@pytest.mark.parametrize(
    ("given_id", "call_id"), [("call_7", "call_7"), (None, ""), (7, "7"), ("a\nb", "a b")]
)
def test_a_native_call_keeps_its_id_as_one_line(given_id: object, call_id: str) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Ulm"}'}
    read = read_native_calls([{"id": given_id, "function": function}])
    assert read == {
        "calls": [{"tool": "get_weather", "args": {"city": "Ulm"}, "id": call_id}],
        "again": True,
    }
