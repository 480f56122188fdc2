"""The OpenTelemetry instruments that `_telemetry.measure` uses.

Names, units, buckets and attributes of `gen_ai.*` follow OpenTelemetry's GenAI conventions in the
version that `_telemetry` names. The library defines `llm_common.*`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

# 10 ms to 82 s.
_SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
# 100 ms to 410 s.
_RUN_SECONDS: Final = tuple(0.1 * 2**power for power in range(13))
# 1 to 67 million.
_TOKENS: Final = tuple(4**power for power in range(14))
_CALLS: Final = tuple(2**power for power in range(8))
_TENTHS: Final = tuple(tenth / 10 for tenth in range(1, 11))


class Instrument(NamedTuple):
    """A histogram, or a counter if it has no buckets."""

    unit: str
    description: str
    buckets: Sequence[float] = ()


INSTRUMENTS: Final[Mapping[str, Instrument]] = MappingProxyType(
    {
        "gen_ai.client.inference.duration": Instrument(
            "s", "A call of a chat model, its retries included.", _SECONDS
        ),
        "gen_ai.client.inference.time_to_first_chunk": Instrument(
            "s", "From a streamed call to the first text of its answer.", _SECONDS
        ),
        "gen_ai.client.inference.usage.input_tokens": Instrument(
            "{token}", "Input tokens, cached ones included."
        ),
        "gen_ai.client.inference.usage.output_tokens": Instrument("{token}", "Output tokens."),
        "gen_ai.client.inference.usage.cache_read.input_tokens": Instrument(
            "{token}", "Input tokens that the provider had in its cache."
        ),
        "gen_ai.client.inference.operation.input_tokens": Instrument(
            "{token}", "Input tokens of a call.", _TOKENS
        ),
        "gen_ai.client.inference.operation.output_tokens": Instrument(
            "{token}", "Output tokens of a call.", _TOKENS
        ),
        "gen_ai.client.operation.duration": Instrument(
            "s", "A selection or a memory operation.", _SECONDS
        ),
        "gen_ai.execute_tool.duration": Instrument("s", "A tool call.", _SECONDS),
        "gen_ai.invoke_agent.duration": Instrument("s", "A run.", _RUN_SECONDS),
        "gen_ai.invoke_agent.inference_calls": Instrument(
            "{inference_call}", "Model calls of a run.", _CALLS
        ),
        "gen_ai.invoke_agent.tool_calls": Instrument("{tool_call}", "Tool calls of a run.", _CALLS),
        "llm_common.cost": Instrument(
            "{USD}", "Dollars of model calls, where their price is known."
        ),
        "llm_common.context.budget_use": Instrument(
            "1", "Packed tokens of a context, by its budget.", _TENTHS
        ),
    }
)
