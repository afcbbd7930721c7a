"""Transactions: what is encoded is decoded, whichever program wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb
from conroi.format.transaction import Transaction, decode_transaction, encode_transaction
from tests.format.effort import few
from tests.support.wire import plant, planted, unknown_field

OPERATIONS = [field.name for field in pb.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields]


def a_transaction(operation: str, **more: object) -> Transaction:
    wire = pb.Transaction(read_version=3, uuid="b8ec0968-3713-4d97-8dbc-219688a7b73c", **more)  # type: ignore[arg-type]
    getattr(wire, operation).SetInParent()
    return Transaction(wire)


@pytest.mark.contract("T3")
@few
@given(st.sampled_from(OPERATIONS), st.dictionaries(st.text(), st.text(), max_size=3))
def test_what_is_encoded_is_decoded(operation: str, properties: dict[str, str]):
    transaction = a_transaction(operation, transaction_properties=properties)
    found = decode_transaction(encode_transaction(transaction))
    assert found == transaction
    assert found.properties == properties
    assert encode_transaction(found) == encode_transaction(transaction)


@pytest.mark.contract("T3", "T13")
def test_pylances_transactions_survive_our_rewrite(busy_table: Path):
    for path in (busy_table / "_transactions").iterdir():
        theirs = decode_transaction(path.read_bytes())
        assert theirs.file_name == path.name
        assert decode_transaction(encode_transaction(theirs)) == theirs


@pytest.mark.contract("T13")
def test_unknown_fields_and_operations_survive():
    wire = pb.Transaction(read_version=3, uuid="u")
    plant(wire, b"an operation of the future")
    found = decode_transaction(encode_transaction(Transaction(wire)))
    assert planted(found.wire) == [b"an operation of the future"]
    assert found.operation_name == "Unknown"


def test_a_checksum_does_not_stay_in_a_changed_transaction():
    """A rebase changes the message; the old checksum over it must be gone."""
    found = decode_transaction(encode_transaction(a_transaction("append")))
    changed = pb.Transaction()
    changed.CopyFrom(found.wire)
    changed.read_version = 9
    assert decode_transaction(encode_transaction(Transaction(changed))).read_version == 9


@pytest.mark.contract("T14")
@pytest.mark.parametrize(
    ("data", "what"),
    [(b"", "no id"), (pb.Transaction(uuid="u").SerializeToString(), "no operation"), (b"\xff", "not a valid message")],
)
def test_what_is_no_transaction_is_refused(data: bytes, what: str):
    with pytest.raises(CorruptionError, match=what):
        decode_transaction(data)


def test_an_unknown_field_is_what_the_tests_think_it_is():
    wire = pb.Transaction.FromString(unknown_field(b"abc"))
    assert planted(wire) == [b"abc"]
