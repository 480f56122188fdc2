"""Convert data to safe text: canonical JSON, excerpts and fences."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.text.canonical import decode_json, stable_json, to_plain
    from llm_common.text.display import (
        CONTROLS,
        counted,
        excerpt_text,
        in_fence,
        inert,
        one_line,
        printable,
        to_json,
        visible,
    )
    from llm_common.text.tabular import is_tabular

__all__ = [
    "CONTROLS",
    "counted",
    "decode_json",
    "excerpt_text",
    "in_fence",
    "inert",
    "is_tabular",
    "one_line",
    "printable",
    "stable_json",
    "to_json",
    "to_plain",
    "visible",
]

_MODULES = {
    "CONTROLS": "llm_common.text.display",
    "counted": "llm_common.text.display",
    "decode_json": "llm_common.text.canonical",
    "excerpt_text": "llm_common.text.display",
    "in_fence": "llm_common.text.display",
    "inert": "llm_common.text.display",
    "is_tabular": "llm_common.text.tabular",
    "one_line": "llm_common.text.display",
    "printable": "llm_common.text.display",
    "stable_json": "llm_common.text.canonical",
    "to_json": "llm_common.text.display",
    "to_plain": "llm_common.text.canonical",
    "visible": "llm_common.text.display",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
