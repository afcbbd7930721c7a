"""A tour of one table in a temporary folder: `make demo`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import lance

import conroi


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/orders.lance"

        say("A table with a key, and four writers that append at the same time")
        first = [{"id": number, "amount": 1.0} for number in range(8)]
        orders = conroi.create_table(uri, first, key="id", message="the first eight")
        at_once(4, lambda n: conroi.open_table(uri).append([{"id": 100 + n, "amount": 5.0}], message=f"writer {n}"))
        orders = orders.latest()
        show(f"version {orders.version} has {orders.count_rows()} rows: nothing was lost")

        say("Four writers delete different rows of one file at the same time: their deletions are merged")
        at_once(4, lambda n: conroi.open_table(uri).delete(f"id = {n}", message=f"without {n}"))
        orders = orders.latest()
        show(f"left: {sorted(values(orders, 'id'))}")

        say("Update, and look back")
        orders.tags.create("before-the-rise")
        orders = orders.update({"amount": "amount * 2"}, where="id >= 100", message="the rise")
        old, new = orders.at(tag="before-the-rise"), orders
        show(f"sum before {sum(values(old, 'amount'))}, after {sum(values(new, 'amount'))}")

        say("A mistake, refused before anything is written")
        try:
            orders.append([{"id": "not a number", "amount": 1.0}])
        except conroi.InvalidInputError as error:
            show(f"{type(error).__name__}: {error}")

        say("pylance reads the same table, and writes to it; conroi goes on from there")
        lance.dataset(uri).delete("id = 7")
        orders = orders.latest().append([{"id": 200, "amount": 9.0}], message="after pylance")
        show(f"pylance sees {lance.dataset(uri).count_rows()} rows, conroi {orders.count_rows()}")

        say("The history")
        for commit in orders.history(limit=6):
            show(f"version {commit.version:>2}  {commit.operation:<10} {commit.message or ''}")


def at_once(count: int, work: Callable[[int], object]) -> None:
    """Run so many writers in threads, and raise what they raise."""
    with ThreadPoolExecutor(count) as writers:
        list(writers.map(work, range(count)))


def values(table: conroi.Table, column: str) -> list[float]:
    return [row[column] for row in table.to_arrow(columns=[column]).to_pylist()]


def say(title: str) -> None:
    print(f"\n{title}")


def show(line: str) -> None:
    print(f"  {line}")


if __name__ == "__main__":
    main()
