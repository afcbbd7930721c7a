"""Copying a file of one table into another."""

from __future__ import annotations

import os
import shutil

from conroi.stores.objects import Objects


def copy_file(source: Objects, target: Objects, path: str) -> None:
    """The same path below both roots; within one machine or one bucket the bytes do not pass through us."""
    if source.is_local and target.is_local:
        destination = os.path.join(target.root, path)
        os.makedirs(os.path.dirname(destination), exist_ok=True)
        shutil.copyfile(os.path.join(source.root, path), destination)
        target.sync([path])
        return
    target.copy_from(source, path)
