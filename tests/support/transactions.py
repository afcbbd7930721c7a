"""Transactions made by hand."""

from __future__ import annotations

import uuid

from conroi import LanceTransaction
from conroi.format import lance_pb2 as pb


def reserve_fragments(
    read_version: int, *, transaction_id: str = "00000000-0000-4000-8000-00000000000a"
) -> LanceTransaction:
    """The smallest change there is: one fragment id is set aside."""
    operation = pb.Transaction.ReserveFragments(num_fragments=1)
    return LanceTransaction(pb.Transaction(read_version=read_version, uuid=transaction_id, reserve_fragments=operation))


def new_id() -> str:
    """An id for one of several."""
    return str(uuid.uuid4())
