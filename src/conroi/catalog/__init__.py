"""Catalog of a lake: the `__manifest` table pins a version of each table; a publication moves many pins atomically."""

from conroi.catalog.opening import migrate

__all__ = ["migrate"]
