"""Choose the outputs of an answer by the probabilities of a decision model.

    python examples/decision_model.py http://127.0.0.1:8000/v1/decisions

A decision model writes no text: it answers each question about a state with a probability. If its
endpoint fails, no output is shown, and no answer is requested.
"""

import asyncio
import json
import sys
from collections.abc import Sequence

import httpx

from llm_common.agents import Answering, ContextPointer, RelevanceSelection, ToolContextManager
from llm_common.testing import ScriptedClient

QUESTION = "Is it snowing in Oslo?"
REPORTS = {"Oslo": "Snow all day", "Lima": "Fog", "Cairo": "Clear"}
LIKELY = 0.5  # more probable than not
TIMEOUT_S = 5
MAX_SELECTED = 6


class DecisionSelector:
    """Selects the outputs that probably help. Implements `SelectsPointers`."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def select_detailed(
        self, *, query: str, pointers: Sequence[ContextPointer]
    ) -> RelevanceSelection:
        """Select pointers for one query, the most probable first. A failure is the status."""
        try:
            probabilities = await self._ask(query, [pointer.summary for pointer in pointers])
        except (httpx.HTTPError, TimeoutError, LookupError, TypeError, ValueError) as exc:
            # Without the exception's text, which may quote the endpoint.
            problem = f"the decision model failed: {type(exc).__name__}"
            return RelevanceSelection(status="error", used="model", problem=problem)
        ranked = sorted(zip(probabilities, pointers, strict=True), key=lambda pair: -pair[0])
        chosen = [pointer for probability, pointer in ranked if probability > LIKELY]
        return RelevanceSelection(
            pointers=chosen[:MAX_SELECTED], status="ok" if chosen else "empty", used="model"
        )

    async def _ask(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the probability that each text helps. A missing answer counts as no."""
        # Tools wrote the texts. They are data of the state, and the questions only name numbers.
        outputs = {str(number): text for number, text in enumerate(texts)}
        questions = []
        for number in outputs:
            question = f"Output {number} helps to answer the query."
            questions.append({"name": number, "type": "predicate", "instructions": question})
        state = json.dumps({"query": query, "outputs": outputs})
        body = {"model": "decider", "input": state, "questions": questions}
        async with asyncio.timeout(TIMEOUT_S), httpx.AsyncClient() as http:
            reply = (await http.post(self.url, json=body)).raise_for_status()
        probabilities = dict.fromkeys(outputs, 0.0)
        for answer in reply.json()["answers"]:
            name, probability = answer["name"], float(answer["probability"])
            if name not in outputs or not 0 <= probability <= 1:
                raise ValueError("the endpoint answers another question, or without a probability")
            probabilities[name] = probability
        return list(probabilities.values())


async def main(url: str) -> None:
    """Print the outputs that the model sees, and its answer."""
    session = ToolContextManager()
    for city, report in REPORTS.items():
        await session.save_context(
            task_id=1, tool_name="weather", args={"city": city}, result=report
        )
    client = ScriptedClient("Yes, all day.")  # your chat client
    answering = Answering(selector=DecisionSelector(url))
    answer = await answering.answer(client, session, query=QUESTION)
    for output in answer.context.outputs if answer.context else ():
        print(output.summary)
    print(answer.status, answer.text or answer.problem)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
