"""The stores that one suite of tests runs over."""

from __future__ import annotations

from tests.support.object_stores import objects

__all__ = ["objects"]
