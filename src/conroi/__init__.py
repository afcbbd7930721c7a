"""conroi: transactions over Lance tables.

>>> import conroi
>>> orders = conroi.create_table("memory://orders-front", [{"id": 1, "amount": 5.0}], key="id")
>>> orders.append([{"id": 2, "amount": 7.5}]).count_rows()
2
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from conroi.old_paths import install

if TYPE_CHECKING:
    from conroi.front import *  # noqa: F403 (the list of public names is there)


class _FrontDoor(ModuleType):
    """The package itself: its public names are loaded when the first of them is asked for."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module
        from importlib.util import find_spec

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
        from importlib import import_module

        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


sys.modules[__name__].__class__ = _FrontDoor
install()
