"""The namespace of a lake in an object store: keys in a bucket instead of paths, and no rename."""

from __future__ import annotations

import lance
import lance_namespace as ln
import lancedb

import conroi
from conroi.namespace import ConroiNamespace
from tests.namespace.clients import NAME, Rivalled, append, ids, ids_of, opened, rows
from tests.support.cloud_servers import BucketServer


def test_pylance_and_lancedb_write_a_lake_in_an_object_store(bucket: BucketServer) -> None:
    uri = bucket.new_uri("a lake").removesuffix(".lance")
    lake = conroi.connect(uri, storage_options=bucket.options)
    lake.create_table("t", rows(1), key="id")
    namespace = ConroiNamespace(lake)
    append(namespace, rows(2, key=True), "t")
    opened(Rivalled(lake, lambda: lake["t"].append(rows(100))), "t").delete("id = 1")
    properties = {"root": uri, **{f"storage.{key}": value for key, value in bucket.options.items()}}
    lancedb.connect(namespace_client_impl=NAME, namespace_client_properties=properties).open_table("t").add(
        rows(3, key=True)
    )
    lance.write_dataset(rows(5), namespace_client=ln.connect(NAME, properties), table_id=["made"], mode="create")
    assert ids(lake, "t") == ids_of(opened(namespace, "t")) == [2, 3, 100]
    assert ids(lake, "made") == [5]
    by_path = lance.dataset(lake["t"].uri, storage_options=bucket.options)
    assert (by_path.version, ids_of(by_path)) == (5, [2, 3, 100])
    assert not [value for name, value in bucket.options.items() if name.endswith("key") and value in repr(namespace)]
