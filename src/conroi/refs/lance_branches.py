"""Branch files of pylance: written in its format, so that pylance lists the branches of a table."""

from __future__ import annotations

import contextlib

from conroi.environment import Environment
from conroi.format.documents import encode_document
from conroi.stores.objects import NameTaken, Objects

_FOLDER = "_refs/branches"


def lance_ref_path(branch: str) -> str:
    """The path of a branch file of pylance."""
    return f"{_FOLDER}/{branch.replace('/', '%2F')}.json"


def write_lance_ref(
    table: Objects, branch: str, parent: str | None, version: int, environment: Environment, *, size: int = 0
) -> None:
    """Write pylance's file of a branch that starts at this version, unless it exists."""
    content = {
        "parentBranch": parent,
        "identifier": {"version_mapping": [[version, environment.new_uuid().hex]]},
        "parentVersion": version,
        "createAt": environment.now_ns() // 1_000_000_000,
        "manifestSize": size,
        "metadata": {},
    }
    with contextlib.suppress(NameTaken):
        table.put_if_absent(lance_ref_path(branch), encode_document(content, indent=2))


def delete_lance_ref(table: Objects, branch: str) -> None:
    """Delete pylance's file of a branch; the branch's files stay until they are collected."""
    table.delete([lance_ref_path(branch)])
