"""An order workflow: charge every item, remember the order, enter it in a ledger file.

It is written as if nothing could ever go wrong between two lines. The state lives in plain
variables, the ledger in a plain file, and a crash in the middle of `place` is the executor's
business: the worker is rebuilt from its oplog and goes on at the line it had reached.

Every import stands at module level: the standard library is not there at run time, only what the
build has imported.
"""

import secrets
import time
import uuid
from pathlib import Path

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.workflow import Item, Order, Receipt, State, Summary
from wit_world.imports import bank

LEDGER = Path("/ledger.tsv")

seen: dict[str, Summary] = {}
receipts: dict[str, Receipt] = {}


class Workflow(exports.Workflow):
    def place(self, order: Order) -> Receipt:
        if order.id in receipts:
            print(f"order {order.id}: placed before")
            return receipts[order.id]
        if order.id in seen:
            raise Err("this order was refused before")
        if not order.items:
            raise Err("an order needs at least one item")
        began = time.monotonic()
        references = charge_items(order)
        receipt = Receipt(
            order=order.id,
            customer=order.customer,
            total_cents=sum(cents_of(item) for item in order.items),
            references=references,
            confirmation=f"{uuid.uuid4()}-{secrets.token_hex(4)}",
            placed_at=int(time.time()),
        )
        enter_in_ledger(receipt)
        receipts[order.id] = receipt
        remember(order, State.PLACED, receipt.total_cents)
        elapsed = time.monotonic() - began
        print(f"order {order.id}: placed, {receipt.total_cents} cents, {elapsed:.3f} s")
        return receipt

    def status(self, order: str) -> Summary | None:
        return seen.get(order)

    def orders(self) -> list[Summary]:
        return list(seen.values())

    def ledger(self) -> list[str]:
        return LEDGER.read_text().splitlines() if LEDGER.exists() else []


def charge_items(order: Order) -> list[str]:
    """One remote write an item. A refusal of the bank ends the order; what was charged stays."""
    references: list[str] = []
    charged = 0
    for number, item in enumerate(order.items, 1):
        cents = cents_of(item)
        print(f"order {order.id}: item {number} of {len(order.items)}, {item.sku}, {cents} cents")
        try:
            references.append(bank.charge(order.customer, cents))
        except Err as refusal:
            remember(order, State.REFUSED, charged)
            raise Err(f"{item.sku}: {refusal.value}") from None
        charged += cents
    return references


def cents_of(item: Item) -> int:
    return item.quantity * item.cents


def remember(order: Order, state: State, charged: int) -> None:
    seen[order.id] = Summary(
        id=order.id, customer=order.customer, state=state, charged_cents=charged
    )


def enter_in_ledger(receipt: Receipt) -> None:
    columns = (receipt.placed_at, receipt.order, receipt.customer, receipt.total_cents)
    with LEDGER.open("a") as file:
        file.write("\t".join(map(str, columns)) + "\n")
