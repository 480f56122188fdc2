"""An agent of five dependent steps: its tools, and a model that knows only its prompts."""

import json
import re
from collections.abc import Callable
from typing import Any

from llm_common.agents import ToolRegistry

QUESTION = "What does the open order of Ann Lee cost, and has it been shipped?"
STEPS = [
    "Find the account of Ann Lee",
    "List the orders of the account",
    "Get the items of the open order",
    "Look up the price of each item, and whether the open order has been shipped",
    "Check that nothing else is needed",
]
ANSWER = "The open order costs 37.50 dollars. Whether it has been shipped could not be looked up."
ORDERS = [
    {"id": f"O-{n}", "status": "open" if n == 1931 else "closed", "note": "n" * 40}
    for n in range(1_000, 2_000)
]


def registry(made: Callable[[str], None] = lambda tool: None) -> ToolRegistry:
    """Return the tools, which call `made` with their names."""
    tools = ToolRegistry()

    @tools.tool
    def find_account(name: str) -> dict[str, str]:
        """The account of a customer."""
        made("find_account")
        return {"account_id": "A-17", "name": name}

    @tools.tool
    def list_orders(account_id: str) -> list[dict[str, Any]]:
        """All orders of an account."""
        made("list_orders")
        return ORDERS if account_id == "A-17" else []

    @tools.tool
    def order_items(order_id: str) -> dict[str, Any]:
        """The items of an order."""
        made("order_items")
        return {
            "order_id": order_id,
            "sku": "S-5" if order_id == "O-1931" else "none",
            "quantity": 3,
        }

    @tools.tool
    def price(sku: str) -> dict[str, Any]:
        """The price of an item."""
        made("price")
        return {"sku": sku, "price_usd": 12.5 if sku == "S-5" else 0}

    @tools.tool
    def shipment(order_id: str) -> dict[str, Any]:
        """Whether an order has been shipped."""
        made("shipment")
        raise ConnectionError("the carrier does not answer")

    return tools


def choose(prompt: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the next calls for a prompt, and whether later calls depend on them."""
    prompt = prompt.replace('\\"', '"')
    account = re.search(r'"account_id":"(A-\d+)"', prompt)
    order = re.search(r"id: (O-\d+)", prompt)
    sku = re.search(r'"sku":"(S-\d+)"', prompt)
    if re.search(r'"price_usd":', prompt):
        return [], False
    if sku and order:
        wrong = {"tool": "price", "args": {"item": sku[1]}}  # refused: there is no such parameter
        right = {"tool": "price", "args": {"sku": sku[1]}}
        return [wrong, right, {"tool": "shipment", "args": {"order_id": order[1]}}], True
    if order:
        return [{"tool": "order_items", "args": {"order_id": order[1]}}], True
    if account:
        return [{"tool": "list_orders", "args": {"account_id": account[1]}}], True
    return [{"tool": "find_account", "args": {"name": "Ann Lee"}}], True


def answer(prompt: str) -> str:
    """Return the answer for a prompt."""
    quantity, each = (
        re.search(rf'"{name}":\s*([\d.]+)', prompt) for name in ("quantity", "price_usd")
    )
    if not quantity or not each:
        return "The context does not hold it."
    cost = f"The open order costs {int(quantity[1]) * float(each[1]):.2f} dollars."
    failed = "shipment raised ConnectionError" in prompt
    return f"{cost} Whether it has been shipped could not be looked up." if failed else cost


def reply_to(prompt: str) -> str:
    """Return the model's reply to a prompt."""
    if "You choose the tool calls" not in prompt:
        return answer(prompt)
    calls, again = choose(prompt)
    return json.dumps({"calls": calls, "again": again})
