"""Files of a table that live under another root: the bases of clones and branches."""

from __future__ import annotations

from conroi.errors import CorruptionError, UnsupportedError
from conroi.format.manifest import Manifest
from conroi.stores.objects import Objects, open_objects


def objects_of_base(objects: Objects, manifest: Manifest, base_id: int | None) -> Objects:
    """Where files with this base id are; the table's own root without one."""
    if base_id is None:
        return objects
    for base in manifest.head.base_paths:
        if base.id == base_id:
            if not base.is_dataset_root:
                raise UnsupportedError(
                    f"Deletion files under the base {base.path} cannot be found: it is not the root of a table.",
                    table=objects.root,
                    hint="Compact those fragments with the program that wrote them.",
                )
            return open_objects(base.path, objects.storage_options)
    raise CorruptionError(
        f"The manifest names base {base_id}, which it does not have.",
        table=objects.root,
        version=manifest.version,
        hint="The manifest is damaged, or its writer is broken; open another version.",
    )
