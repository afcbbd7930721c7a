"""Every operation to its facts and back, with every field set, and with unknown fields."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from conroi import operations
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.format import lance_pb2 as pb
from conroi.format.transaction import Transaction
from conroi.operations import Append, DataOverlay, Step, Unknown, UpdateConfig
from tests.operations.tables import fragment, manifest
from tests.support.wire import plant, planted

KINDS = sorted(pb.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields, key=lambda kind: kind.number)

# Two operations have a form of older writers; a message has the one or the other.
OLD_FORM = {
    "rewrite": {"old_fragments", "new_fragments", "rewritten_indices"},
    "update_config": {"upsert_values", "delete_keys", "schema_metadata", "field_metadata"},
}


def fill(message: Message, *, only: set[str] | None = None, without: frozenset[str] = frozenset()) -> None:
    """Set every field, and what is inside, to something that is not its default."""
    for field in message.DESCRIPTOR.fields:
        if field.name in without or (only is not None and field.name not in only):
            continue
        _fill_field(message, cast("Any", field))


def is_repeated(field: FieldDescriptor) -> bool:
    """Protobuf 6 has a property for it, and protobuf 7 no longer has the label."""
    known = cast("Any", field)
    return known.is_repeated if hasattr(field, "is_repeated") else known.label == FieldDescriptor.LABEL_REPEATED


def _fill_field(message: Message, field: FieldDescriptor) -> None:
    target = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        value = kind.fields_by_name["value"]
        key = "key" if kind.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING else 7
        if value.message_type is not None:
            fill(target[key])
        else:
            target[key] = _scalar(value)
    elif is_repeated(field) and field.message_type is not None:
        fill(target.add())
        fill(target.add())
    elif is_repeated(field):
        target.extend([_scalar(field), _scalar(field, "another")])
    elif field.message_type is not None:
        target.SetInParent()
        fill(target)
    else:
        setattr(message, field.name, _scalar(field))


def _scalar(field: FieldDescriptor, word: str = "one") -> object:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return word.encode()
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{word} {field.name}"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    return field.enum_type.values[-1].number if field.enum_type is not None else 5


def filled(kind: str, *, is_old_form: bool = False) -> pb.Transaction:
    wire = pb.Transaction(read_version=4, uuid="one", tag="tag")
    message = getattr(wire, kind)
    message.SetInParent()
    old = OLD_FORM.get(kind, set())
    fill(
        message,
        only=old if is_old_form else None,
        without=frozenset(() if is_old_form else old - {"rewritten_indices"}),
    )
    return wire


CASES = [(kind.name, False) for kind in KINDS] + [(kind, True) for kind in OLD_FORM]


@pytest.mark.contract("T5", "T13")
@pytest.mark.parametrize(("kind", "is_old_form"), CASES)
def test_every_field_comes_back(kind: str, is_old_form: bool) -> None:
    wire = filled(kind, is_old_form=is_old_form)
    operation = operations.of(Transaction(wire))
    assert operations.transaction(operation, read_version=4, uuid="one", tag="tag").wire == wire


@pytest.mark.contract("T13")
@pytest.mark.parametrize(("kind", "is_old_form"), CASES)
def test_unknown_fields_come_back(kind: str, is_old_form: bool) -> None:
    wire = filled(kind, is_old_form=is_old_form)
    plant(getattr(wire, kind), b"from the future")
    again = operations.of(Transaction(wire)).to_wire()
    assert planted(getattr(again, kind)) == [b"from the future"]


@pytest.mark.contract("T13")
@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_an_operation_without_any_field_is_still_that_operation(kind: str) -> None:
    wire = pb.Transaction(uuid="one")
    getattr(wire, kind).SetInParent()
    operation = operations.of(Transaction(wire))
    assert operation.to_wire().WhichOneof("operation") == kind
    assert operation.name == Transaction(wire).operation_name


def test_there_are_fifteen_operations_and_two_that_are_only_recognised() -> None:
    names = {operations.of(Transaction(filled(kind.name))).name for kind in KINDS}
    assert len(names) == 16
    assert names == {name for name in operations.__all__ if name in names}


@pytest.mark.contract("T13")
def test_an_operation_of_the_future_is_unknown_and_comes_back() -> None:
    wire = pb.Transaction(read_version=4, uuid="one")
    plant(wire, b"operation of the future")
    operation = operations.of(Transaction(wire))
    assert isinstance(operation, Unknown)
    assert operations.transaction(operation, read_version=4, uuid="one").wire == wire


@pytest.mark.parametrize("operation", [Unknown(), DataOverlay()])
def test_what_is_only_recognised_is_not_applied(operation: Unknown | DataOverlay) -> None:
    with pytest.raises(UnsupportedError):
        operation.apply(manifest(), Step(version=2))


def test_mixing_the_two_forms_of_a_config_update_is_refused() -> None:
    message = pb.Transaction.UpdateConfig(upsert_values={"a": "b"})
    message.config_updates.replace = True
    with pytest.raises(InvalidInputError, match="mixes"):
        UpdateConfig.from_wire(message)


def test_a_transaction_carries_read_version_id_tag_and_properties() -> None:
    made = operations.transaction(
        Append((fragment(),)), read_version=7, uuid="two", properties={"who": "me"}, tag="tag"
    )
    assert (made.read_version, made.uuid, made.properties, made.wire.tag) == (7, "two", {"who": "me"}, "tag")
    assert made.file_name == "7-two.txn"
    assert made.operation_name == "Append"


@pytest.mark.contract("T13")
def test_a_rebased_transaction_keeps_all_but_operation_and_read_version() -> None:
    original = operations.transaction(Append((fragment(),)), read_version=7, uuid="two", properties={"who": "me"})
    plant(original.wire, b"future")
    rebased = operations.with_operation(original, Append(()), read_version=9)
    assert (rebased.read_version, rebased.uuid, rebased.properties) == (9, "two", {"who": "me"})
    assert planted(rebased.wire) == [b"future"]
    assert not rebased.wire.append.fragments
    assert len(original.wire.append.fragments) == 1
