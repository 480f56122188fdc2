"""What the model of the programs replies, from the prompt alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.integrations.scripted_endpoint import Endpoint, Reply, declared_by
from tests.wire_formats import text_of

QUESTION = re.compile(r"Question (\d) of (\w+): ")
USERS = ("ann", "bob", "eve", "zoe")
STRANGER = "mallory"
"""A user who names a result of the first user."""


def ask(number: int, user: str, text: str) -> str:
    """Return a question that `Prompt` finds again, whatever a framework puts around it."""
    return f"Question {number} of {user}: {text}"


@dataclass(frozen=True)
class Prompt:
    """A request as the model sees it.

    Attributes:
        user: Who asks the newest question.
        number: The question's number.
        replies: How often the model has replied to it.
        text: All that follows the question.
        everything: All messages.
        offered: The schemas of the tools, by name.
    """

    user: str
    number: int
    replies: int
    text: str
    everything: str
    offered: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(
        cls, messages: list[tuple[str, str]], offered: Mapping[str, Mapping[str, Any]]
    ) -> "Prompt":
        """Return the prompt of roles and texts, oldest first."""
        newest = -1
        for index, (role, text) in enumerate(messages):
            if role == "user" and QUESTION.search(text):
                newest = index
        number, user = QUESTION.findall(messages[newest][1])[-1]
        after = messages[newest + 1 :]
        return cls(
            user=user,
            number=int(number),
            replies=sum(role == "assistant" for role, _ in after),
            text="\n".join(text for _, text in after),
            everything="\n".join(text for _, text in messages),
            offered=offered,
        )


class Player(Endpoint):
    """An endpoint that plays the model of all users.

    Attributes:
        prompts: Those that arrived.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pointers: dict[tuple[str, str], str] = {}
        self.prompts: list[Prompt] = []

    def reply_to(self, body: dict[str, Any]) -> Reply:
        messages = [(one["role"], text_of(one.get("content"))) for one in body["messages"]]
        prompt = Prompt.of(messages, declared_by(body))
        self.prompts.append(prompt)
        for tool in ("list_orders", "read_log"):
            for pointer_id in re.findall(rf"### {tool} \(([0-9a-f]{{12,16}})\)", prompt.text):
                self._pointers[prompt.user, tool] = pointer_id
        steps = {1: self._report, 2: self._track, 3: self._resume, 4: self._intrude}
        return steps[prompt.number](prompt)

    def _report(self, prompt: Prompt) -> Reply:
        """Read a row and a line, count rows by SQL, and search."""
        customer = {"customer": prompt.user}
        if prompt.replies == 0:
            return [("list_orders", customer), ("read_log", customer)]
        if prompt.replies == 1:
            log = self._pointers[prompt.user, "read_log"]
            return [self._row(prompt.user, 4_321), _reading(log, pattern="ERROR.*")]
        if prompt.replies == 2:
            return [self._count(prompt.user, 700), ("search_context", {"words": "disk failed"})]
        return prompt.text

    def _track(self, prompt: Prompt) -> Reply:
        """Call a tool, which may have to be found first."""
        if prompt.replies == 0 and "find_tools" in prompt.offered:
            return [("find_tools", {"query": "which courier has a parcel"})]
        if "courier 7" not in prompt.text:
            return [("track_parcel", {"parcel": f"P-{prompt.user}"})]
        return prompt.text

    def _resume(self, prompt: Prompt) -> Reply:
        """Read and count by what an earlier process showed."""
        if prompt.replies == 0:
            return [self._row(prompt.user, 17), self._count(prompt.user, 34_000)]
        return prompt.text

    def _intrude(self, prompt: Prompt) -> Reply:
        if prompt.replies == 0:
            return [self._row(USERS[0], 17)]
        return prompt.text

    def _row(self, user: str, number: int) -> tuple[str, dict[str, Any]]:
        return _reading(self._pointers[user, "list_orders"], path=f"/{number}/code")

    def _count(self, user: str, price: int) -> tuple[str, dict[str, Any]]:
        table = f"list_orders_{self._pointers[user, 'list_orders'][:6]}"
        sql = f"SELECT 'rows: ' || count(*) AS answer FROM {table} WHERE price > {price}"
        return ("query_context", {"sql": sql})


def _reading(pointer_id: str, **part: str) -> tuple[str, dict[str, Any]]:
    return ("read_context", {"id": pointer_id, **part})
