"""The lake's `__manifest`: which tables there are, at which version each is pinned, and how many move at once."""

from conroi.catalog.migration import migrate

__all__ = ["migrate"]
