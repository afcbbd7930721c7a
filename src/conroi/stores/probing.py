"""Does a storage keep the one promise that commits need: that a name is created only if it is free?"""

from __future__ import annotations

from conroi.environment import Environment
from conroi.errors import ConroiError
from conroi.stores.objects import NameTaken, Objects

PROBE_DIR = "_conroi"


def keeps_conditions(objects: Objects, environment: Environment) -> bool | None:
    """Try it with a small file of our own, which is deleted again; None if this client may not write here."""
    path = f"{PROBE_DIR}/probe-{environment.new_uuid()}"
    try:
        objects.put_if_absent(path, b"first")
    except (ConroiError, NameTaken):
        return None
    try:
        objects.put_if_absent(path, b"second")
    except NameTaken:
        return True
    except ConroiError:
        return None
    else:
        return False
    finally:
        _discard(objects, path)


def _discard(objects: Objects, path: str) -> None:
    try:
        objects.delete([path])
    except ConroiError:
        return  # it is in nobody's way
