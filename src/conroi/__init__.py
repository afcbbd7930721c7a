"""conroi: transactions over Lance tables.

>>> import conroi
>>> orders = conroi.create_table("memory://orders-front", [{"id": 1, "amount": 5.0}], key="id")
>>> orders.append([{"id": 2, "amount": 7.5}]).count_rows()
2
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conroi.front import *  # noqa: F403 (the list of public names is there)


class _FrontDoor(ModuleType):
    """The package itself: its public names are loaded when the first of them is asked for."""

    def __getattr__(self, name: str) -> Any:
        is_own = not name.startswith("__") or name in ("__all__", "__version__")
        if is_own and name != "commit" and find_spec(f"conroi.{name}") is not None:
            return import_module(f"conroi.{name}")
        front = import_module("conroi.front") if is_own else None
        if front is None or not hasattr(front, name):
            raise AttributeError(f"module 'conroi' has no attribute {name!r}")
        value = getattr(front, name)
        ModuleType.__setattr__(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Importing conroi.commit.… would put the folder where the function `conroi.commit` belongs.
        if name != "commit" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # Sent to another process, as Spark does with functions that name it, a module is its name.
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


OLD_PATHS = {"conroi.catalog.namespace": "conroi.namespace"}
"""Import paths of earlier releases that users have in configuration."""


class _OldPaths(MetaPathFinder, Loader):
    """Finds a module that moved by its old name, where nothing else is found."""

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


sys.modules[__name__].__class__ = _FrontDoor
sys.meta_path.append(_OldPaths())
