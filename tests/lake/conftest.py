"""The small lake that these tests share."""

from __future__ import annotations

from tests.support.lake_fixtures import lake, other

__all__ = ["lake", "other"]
