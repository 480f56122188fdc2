"""What the oracle asks: records, questions about them, and the truth."""

from dataclasses import dataclass

from llm_common.text.canonical import Json


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about records.

    Attributes:
        kind: What is asked, such as "range of dates".
        question: The question.
        truth: Number of records that it means. None if the records cannot tell, so that silence is
            right.
    """

    kind: str
    question: str
    truth: int | None


@dataclass(frozen=True, slots=True)
class Domain:
    """Records of one kind, as a tool returns them.

    Attributes:
        tool: Name of the tool.
        records: The records.
        asked: Questions about them.
    """

    tool: str
    records: list[dict[str, Json]]
    asked: list[Asked]
