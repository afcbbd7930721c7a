"""UpdateConfig: changes the table's config, and the metadata of the table, its schema and its fields."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.operations.base import Step, unknown_fields
from conroi.operations.schemas import KEY_MARKS, check_keys, mark_keys


def update_map(values: Mapping[str, str | None], *, replace: bool = False) -> pb.UpdateMap:
    """A change of a map: set these keys (None: delete), after emptying the map if `replace`."""
    entries = [pb.UpdateMap.Entry(key=key, value=value) for key, value in values.items()]
    return pb.UpdateMap(update_entries=entries, replace=replace)


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """Change up to four maps; `field_metadata` by field id. Build the changes with `update_map`.

    `is_old_form` marks a transaction in the form of older writers, which is written back in that form.
    """

    name: ClassVar[str] = "UpdateConfig"

    config: pb.UpdateMap | None = None
    table_metadata: pb.UpdateMap | None = None
    schema_metadata: pb.UpdateMap | None = None
    field_metadata: Mapping[int, pb.UpdateMap] = field(default_factory=dict[int, pb.UpdateMap])
    is_old_form: bool = False
    unknown: bytes = b""

    def to_wire(self) -> pb.Transaction:
        message = self._old_form() if self.is_old_form else self._new_form()
        message.MergeFromString(self.unknown)
        return pb.Transaction(update_config=message)

    def _new_form(self) -> pb.Transaction.UpdateConfig:
        message = pb.Transaction.UpdateConfig(
            config_updates=self.config,
            table_metadata_updates=self.table_metadata,
            schema_metadata_updates=self.schema_metadata,
        )
        for field_id, change in self.field_metadata.items():
            message.field_metadata_updates[field_id].CopyFrom(change)
        return message

    def _old_form(self) -> pb.Transaction.UpdateConfig:
        config = _entries(self.config)
        message = pb.Transaction.UpdateConfig(
            upsert_values={key: value for key, value in config.items() if value is not None},
            delete_keys=[key for key, value in config.items() if value is None],
            schema_metadata=_values(self.schema_metadata),
        )
        for field_id, change in self.field_metadata.items():
            message.field_metadata[field_id].metadata.update(_values(change))
        return message

    @classmethod
    def from_wire(cls, message: pb.Transaction.UpdateConfig) -> UpdateConfig:
        is_new_form = bool(message.field_metadata_updates) or any(
            message.HasField(name) for name in ("config_updates", "table_metadata_updates", "schema_metadata_updates")
        )
        is_old_form = bool(
            message.upsert_values or message.delete_keys or message.schema_metadata or message.field_metadata
        )
        if is_new_form and is_old_form:
            raise InvalidInputError(
                "The config update mixes the form of older writers with the new one.", hint="Use only the new form."
            )
        return cls._from_old_form(message) if is_old_form else cls._from_new_form(message)

    @classmethod
    def _from_new_form(cls, message: pb.Transaction.UpdateConfig) -> UpdateConfig:
        return cls(
            config=message.config_updates if message.HasField("config_updates") else None,
            table_metadata=message.table_metadata_updates if message.HasField("table_metadata_updates") else None,
            schema_metadata=message.schema_metadata_updates if message.HasField("schema_metadata_updates") else None,
            field_metadata=dict(message.field_metadata_updates),
            unknown=unknown_fields(message),
        )

    @classmethod
    def _from_old_form(cls, message: pb.Transaction.UpdateConfig) -> UpdateConfig:
        """Older writers set and deleted single config keys, but replaced metadata as a whole."""
        config: dict[str, str | None] = {**message.upsert_values, **dict.fromkeys(message.delete_keys)}
        schema_metadata = dict(message.schema_metadata)
        return cls(
            config=update_map(config) if config else None,
            schema_metadata=update_map(schema_metadata, replace=True) if schema_metadata else None,
            field_metadata={
                field_id: update_map(dict(change.metadata), replace=True)
                for field_id, change in message.field_metadata.items()
            },
            is_old_form=True,
            unknown=unknown_fields(message),
        )

    def apply(self, base: Manifest, _step: Step) -> Manifest:
        head = base.editable_head()
        _apply(self.config, head.config)
        _apply(self.table_metadata, head.table_metadata)
        _apply_encoded(self.schema_metadata, head.schema_metadata)
        fields = {field.id: field for field in head.fields}
        for field_id, change in self.field_metadata.items():
            if field_id not in fields:
                raise InvalidInputError(
                    f"The table has no field with id {field_id}.", hint=f"Its field ids are {sorted(fields)}."
                )
            _apply_encoded(change, fields[field_id].metadata)
            mark_keys(fields[field_id])
        if self.field_metadata:
            check_keys(base.fields, head.fields, written=self._written_marks())
        return base.changed(head=head)

    def _written_marks(self) -> set[str]:
        """The metadata keys that say what a key is, as far as this change names them."""
        return {key for change in self.field_metadata.values() for key in _entries(change)} & KEY_MARKS


def _entries(change: pb.UpdateMap | None) -> dict[str, str | None]:
    if change is None:
        return {}
    return {entry.key: entry.value if entry.HasField("value") else None for entry in change.update_entries}


def _values(change: pb.UpdateMap | None) -> dict[str, str]:
    return {key: value for key, value in _entries(change).items() if value is not None}


def _apply(change: pb.UpdateMap | None, target: MutableMapping[str, str]) -> None:
    if change is not None and change.replace:
        target.clear()
    for key, value in _entries(change).items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value


def _apply_encoded(change: pb.UpdateMap | None, target: MutableMapping[str, bytes]) -> None:
    """The same for a map whose values are bytes on the wire."""
    if change is not None and change.replace:
        target.clear()
    for key, value in _entries(change).items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value.encode()
