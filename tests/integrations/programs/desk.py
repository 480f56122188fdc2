"""The tools of a help desk: two with results of 300 KB, and 22 with short ones."""

from collections.abc import Callable
from typing import Any

ORDERS = 5_000
LINES = 6_000


def list_orders(customer: str) -> list[dict[str, Any]]:
    """List all orders of a customer, with their codes.

    Args:
        customer: Who placed the orders.
    """
    orders: list[dict[str, Any]] = []
    for number in range(ORDERS):
        order = {"id": number, "part": f"part {number}", "code": code_of(customer, number)}
        orders.append({**order, "price": number * 7})
    return orders


def code_of(customer: str, number: int) -> str:
    """Return the code of an order."""
    return f"S-{customer}-{number}"


def read_log(customer: str) -> str:
    """Read the log of a customer's devices.

    Args:
        customer: Whose log it is.
    """
    lines = [f"{number:06} INFO a request of {customer} is served" for number in range(LINES)]
    lines[3_777] = f"003777 ERROR a disk of {customer} failed"
    return "\n".join(lines)


def get_order(order: int) -> str:
    """Return the state of one order.

    Args:
        order: Number of the order.
    """
    return f"get_order: done for {order}"


def cancel_order(order: int) -> str:
    """Cancel an order that was not sent yet.

    Args:
        order: Number of the order.
    """
    return f"cancel_order: done for {order}"


def change_address(order: int, address: str) -> str:
    """Change where an order is delivered, until it is sent.

    Args:
        order: Number of the order.
        address: Street, town and country.
    """
    return f"change_address: done for {order} and {address}"


def refund_order(order: int, reason: str) -> str:
    """Pay back the price of an order that came back.

    Args:
        order: Number of the order.
        reason: Why the customer sent it back.
    """
    return f"refund_order: done for {order} and {reason}"


def reserve_part(part: str, amount: int) -> str:
    """Reserve pieces of a part in the warehouse for a week.

    Args:
        part: Name of the part.
        amount: How many pieces.
    """
    return f"reserve_part: done for {part} and {amount}"


def release_part(part: str) -> str:
    """Release the reserved pieces of a part.

    Args:
        part: Name of the part.
    """
    return f"release_part: done for {part}"


def count_stock(part: str) -> str:
    """Count the pieces of a part in all warehouses.

    Args:
        part: Name of the part.
    """
    return f"count_stock: done for {part}"


def reorder_part(part: str, amount: int) -> str:
    """Order pieces of a part from its supplier.

    Args:
        part: Name of the part.
        amount: How many pieces.
    """
    return f"reorder_part: done for {part} and {amount}"


def track_parcel(parcel: str) -> str:
    """Return which courier has a parcel, and when it arrives.

    Args:
        parcel: Number on the label of the parcel.
    """
    return f"courier 7 has {parcel}, which arrives at noon"


def print_label(order: int) -> str:
    """Print the label of a parcel.

    Args:
        order: Number of the order.
    """
    return f"print_label: done for {order}"


def book_courier(parcel: str, day: str) -> str:
    """Book a courier who fetches a parcel.

    Args:
        parcel: Number on the label of the parcel.
        day: The day, such as 2026-03-01.
    """
    return f"book_courier: done for {parcel} and {day}"


def open_ticket(customer: str, text: str) -> str:
    """Open a ticket about a problem of a customer.

    Args:
        customer: Who has the problem.
        text: What is wrong.
    """
    return f"open_ticket: done for {customer} and {text}"


def close_ticket(ticket: int) -> str:
    """Close a ticket whose problem is solved.

    Args:
        ticket: Number of the ticket.
    """
    return f"close_ticket: done for {ticket}"


def assign_ticket(ticket: int, colleague: str) -> str:
    """Give a ticket to a colleague of the desk.

    Args:
        ticket: Number of the ticket.
        colleague: Who works on it.
    """
    return f"assign_ticket: done for {ticket} and {colleague}"


def merge_tickets(ticket: int, other: int) -> str:
    """Merge two tickets about the same problem.

    Args:
        ticket: Number of the ticket that stays.
        other: Number of the ticket that is closed.
    """
    return f"merge_tickets: done for {ticket} and {other}"


def send_letter(customer: str, text: str) -> str:
    """Send a letter to a customer by post.

    Args:
        customer: Who gets the letter.
        text: What the letter says.
    """
    return f"send_letter: done for {customer} and {text}"


def write_invoice(customer: str, amount: float) -> str:
    """Write an invoice for a customer.

    Args:
        customer: Who has to pay.
        amount: The price in euros.
    """
    return f"write_invoice: done for {customer} and {amount}"


def cancel_invoice(invoice: int) -> str:
    """Cancel an invoice that was wrong.

    Args:
        invoice: Number of the invoice.
    """
    return f"cancel_invoice: done for {invoice}"


def lend_device(customer: str, device: str) -> str:
    """Lend a customer a device during a repair.

    Args:
        customer: Who gets the device.
        device: Which device.
    """
    return f"lend_device: done for {customer} and {device}"


def plan_visit(customer: str, day: str) -> str:
    """Plan the visit of a technician at a customer's home.

    Args:
        customer: Whom the technician visits.
        day: The day, such as 2026-03-01.
    """
    return f"plan_visit: done for {customer} and {day}"


def cancel_visit(customer: str) -> str:
    """Cancel the next visit of a technician.

    Args:
        customer: Whom the technician would have visited.
    """
    return f"cancel_visit: done for {customer}"


def rate_call(call: int, stars: int) -> str:
    """Rate how a call of the desk went.

    Args:
        call: Number of the call.
        stars: From 1 to 5.
    """
    return f"rate_call: done for {call} and {stars}"


TOOLS: tuple[Callable[..., Any], ...] = (
    list_orders,
    read_log,
    get_order,
    cancel_order,
    change_address,
    refund_order,
    reserve_part,
    release_part,
    count_stock,
    reorder_part,
    track_parcel,
    print_label,
    book_courier,
    open_ticket,
    close_ticket,
    assign_ticket,
    merge_tickets,
    send_letter,
    write_invoice,
    cancel_invoice,
    lend_device,
    plan_visit,
    cancel_visit,
    rate_call,
)
