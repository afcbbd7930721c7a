"""External manifest store in DynamoDB, in the layout of pylance: `s3+ddb://…?ddbTableName=…`.

A table has one item for each version and none for itself. So "the table is at version 7" takes two items: 7 exists, and
8 does not. DynamoDB checks and writes up to a hundred items in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conroi.environment import SYSTEM, Environment
from conroi.errors import CorruptionError, InvalidInputError, StoreUnavailable
from conroi.storage.dynamodb import HASH_KEY, RANGE_KEY, Busy, ConditionFailed, DynamoClient, DynamoTable
from conroi.storage.objects import Objects
from conroi.versions.records import Record, RecordTaken, bucketless_key, check_batch, mismatch

LARGEST_BATCH = 100
"""Items in one transaction, by DynamoDB; a written table takes one or two, a table that is only expected takes two."""
_COMMITTER = "lancedb"
_THERE, _ABSENT = f"attribute_exists({HASH_KEY})", f"attribute_not_exists({HASH_KEY})"
_TRIES, _PAUSE_S = 6, 0.02


class DynamoRecords:
    """Reads are strongly consistent; a batch is one transaction."""

    def __init__(self, table: DynamoTable, *, environment: Environment = SYSTEM) -> None:
        self._table = table
        self._client = DynamoClient(table)
        self._environment = environment

    def __repr__(self) -> str:
        return f"DynamoRecords({self._table.place!r})"

    def __reduce__(self) -> tuple[Callable[[DynamoTable], DynamoRecords], tuple[DynamoTable]]:
        return DynamoRecords, (self._table,)

    def key_of(self, objects: Objects) -> str:
        return bucketless_key(objects)

    def put_if_absent(self, records: Sequence[Record], expected: Mapping[str, int] | None = None) -> None:
        expected = expected or {}
        check_batch(records, expected)
        items = _checks(records, expected, self._table.name) + [_put(record, self._table.name) for record in records]
        if len(items) > LARGEST_BATCH:
            raise InvalidInputError(
                f"This batch needs {len(items)} items, and DynamoDB takes at most {LARGEST_BATCH} in one transaction.",
                hint="Commit fewer tables at once, or use a PostgreSQL store, which has no such limit.",
            )
        self._refuse_old([record for record in records if record.table not in expected])
        try:
            self._refuse_known([table for table, version in expected.items() if version == 0])
            self._transact(items)
        except ConditionFailed:
            self._explain(records, expected)

    def newest(self, table: str) -> Record | None:
        found = self._query(table, ScanIndexForward=False, Limit=1)["Items"]
        return _record(found[0]) if found else None

    def get(self, table: str, version: int) -> Record | None:
        found = self._client.call("get_item", Key=_key(table, version), ConsistentRead=True).get("Item")
        return None if found is None else _record(found)

    def all(self, table: str) -> list[Record]:
        found: list[Record] = []
        page: Mapping[str, Any] = {}
        while True:
            answer = self._query(table, **page)
            found += [_record(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                return found
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def point(self, table: str, version: int, path: str, size: int) -> bool:
        try:
            item = _item(Record(table, version, path, size))
            self._client.call("put_item", Item=item, ConditionExpression=_THERE)
        except ConditionFailed:
            return False
        return True

    def forget(self, table: str, versions: Sequence[int]) -> None:
        """Only from the oldest on: a gap below a newer version would look like a free version."""
        for record in self.all(table):
            if record.version not in versions:
                return
            self._client.call("delete_item", Key=_key(table, record.version))

    def close(self) -> None:
        self._client.close()

    def _query(self, table: str, **how: Any) -> Any:
        return self._client.call(
            "query",
            KeyConditionExpression=f"{HASH_KEY} = :table",
            ExpressionAttributeValues={":table": {"S": table}},
            ConsistentRead=True,
            **how,
        )

    def _refuse_known(self, tables: Sequence[str]) -> None:
        """There is no item for a table itself, so its absence is looked up; the put checks that version 1 is absent."""
        for table in tables:
            newest = self.newest(table)
            if newest is not None and newest.version > 1:
                raise ConditionFailed

    def _refuse_old(self, records: Sequence[Record]) -> None:
        """Versions only increase, so a stale record stays stale; for a newer one the put itself decides."""
        for record in records:
            newest = self.newest(record.table)
            if (
                newest is not None
                and record.version < newest.version
                and self.get(record.table, record.version) is None
            ):
                raise RecordTaken(record.table, record.version, None)

    def _transact(self, items: list[dict[str, Any]]) -> None:
        """Two transactions on the same item are both told to retry; that is not a conflict yet."""
        token = str(self._environment.new_uuid())  # with it, a retry of the client's own is not a second request
        for turn in range(1, _TRIES + 1):
            try:
                self._client.transact(items, token)
            except Busy:
                if turn == _TRIES:
                    raise
                self._environment.sleep(self._environment.uniform(0, _PAUSE_S * 2**turn))
            else:
                return

    def _explain(self, records: Sequence[Record], expected: Mapping[str, int]) -> None:
        """Why a condition failed; nothing, if an earlier request of ours had succeeded."""
        there = [self.get(record.table, record.version) for record in records]
        if records and all(found is not None and found.path == r.path for r, found in zip(records, there, strict=True)):
            return
        for table in sorted(expected):
            newest = self.newest(table)
            actual = 0 if newest is None else newest.version
            if actual != expected[table]:
                raise mismatch(table, expected[table], actual)
        for record, found in zip(records, there, strict=True):
            if found is not None:
                raise RecordTaken(record.table, record.version, found.path)
        raise StoreUnavailable("The records changed while they were looked at.", hint="Nothing was written; try again.")


def _checks(records: Sequence[Record], expected: Mapping[str, int], table_name: str) -> list[dict[str, Any]]:
    written = {(record.table, record.version) for record in records}
    checks: list[dict[str, Any]] = []
    for table, version in expected.items():
        if version:
            checks.append(_check(table, version, _THERE, table_name))
        if (table, version + 1) not in written:  # putting an item checks that it is not there
            checks.append(_check(table, version + 1, _ABSENT, table_name))
    return checks


def _check(table: str, version: int, condition: str, table_name: str) -> dict[str, Any]:
    return {"ConditionCheck": {"TableName": table_name, "Key": _key(table, version), "ConditionExpression": condition}}


def _put(record: Record, table_name: str) -> dict[str, Any]:
    return {"Put": {"TableName": table_name, "Item": _item(record), "ConditionExpression": _ABSENT}}


def _key(table: str, version: int) -> dict[str, Any]:
    return {HASH_KEY: {"S": table}, RANGE_KEY: {"N": str(version)}}


def _item(record: Record) -> dict[str, Any]:
    path = f"{record.table}/{record.path}"
    return {
        **_key(record.table, record.version),
        "path": {"S": path},
        "committer": {"S": _COMMITTER},
        "size": {"N": str(record.size)},
    }


def _record(item: Mapping[str, Any]) -> Record:
    table, version, path = item[HASH_KEY]["S"], int(item[RANGE_KEY]["N"]), item["path"]["S"]
    inside = path.removeprefix(f"{table}/")
    if inside == path:
        raise CorruptionError(
            f"The record of version {version} names the file {path}, which is not in the table.",
            table=table,
            version=version,
            hint="The record was changed by hand; let it name the manifest of that version.",
        )
    return Record(table, version, inside, int(item.get("size", {"N": "0"})["N"]))
