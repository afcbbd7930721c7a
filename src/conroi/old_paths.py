"""Import paths of earlier releases that users have in configuration, such as `conroi.catalog.namespace`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OLD_PATHS = {"conroi.catalog.namespace": "conroi.namespace"}


class _Finder(MetaPathFinder, Loader):
    """Finds a module that moved, by its old name."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in OLD_PATHS else None

    def exec_module(self, module: ModuleType) -> None:
        moved = import_module(OLD_PATHS[module.__name__])
        module.__doc__ = moved.__doc__
        vars(module).update({name: getattr(moved, name) for name in (*moved.__all__, "__all__")})


def install() -> None:
    """Let imports find the old paths where nothing else is found."""
    sys.meta_path.append(_Finder())
