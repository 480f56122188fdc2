"""Pack the files of a folder that answer a question, and print the reason for each file.

    python examples/code_question.py [FOLDER] [QUESTION]

By default it asks about llm-common itself. With a key (ZAI_API_KEY, OPENROUTER_API_KEY,
OPENAI_API_KEY) a model answers from the packed files. `pack_folder` (`llm_common.folders`) packs
folders of any size.
"""

import asyncio
import sys
from pathlib import Path

import llm_common
from llm_common.agents import PromptBundle
from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    classify_intent,
)
from llm_common.core import OpenAICompatibleClient, answer_text, config_from_env

FOLDER = Path(llm_common.__file__).parent / "core"
QUESTION = "How are retries of a model call limited?"
BUDGET_TOKENS = 3_000


def files_of(folder: Path) -> tuple[ContextFile, ...]:
    """Return the Python files of a folder with their texts."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.py"))
    texts = [(folder / path).read_text(encoding="utf-8", errors="replace") for path in paths]
    return tuple(
        ContextFile(id=str(path), path=str(path), name=path.name, content=text, language="python")
        for path, text in zip(paths, texts, strict=True)
    )


async def main(folder: Path, question: str) -> None:
    """Print what was packed and why, and the answer of the model if there is one."""
    request = ContextSelectionRequest(intent=classify_intent(question), token_budget=BUDGET_TOKENS)
    bundle = await ContextSelector().select(
        request, DataPoolSnapshot(context_files=files_of(folder))
    )
    print(f"{bundle.metadata.total_tokens:,} of {bundle.metadata.budget:,} tokens")
    print("kind  item                           form        tokens  score  why")
    for account in (*bundle.kept, *bundle.dropped):
        shown = f"{account.form:10}  {account.tokens:6,}  {account.score:.3f}"
        print(f"{account.kind}  {account.id:30} {shown}  {account.reason}")

    if config_from_env():
        prompt = PromptBundle(
            system="Answer from the files.", background=bundle.render(), instructions=question
        )
        async with OpenAICompatibleClient.from_env() as client:
            print("\n" + await answer_text(client, prompt.to_messages(), model=None, timeout_s=60))


arguments = sys.argv[1:]
chosen_folder = Path(arguments[0]) if arguments else FOLDER
asyncio.run(main(chosen_folder, arguments[1] if len(arguments) > 1 else QUESTION))
