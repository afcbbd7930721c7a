"""How many examples a property is tried on. No deadline: a busy machine is not a failing test."""

from __future__ import annotations

from hypothesis import settings

few = settings(max_examples=60, deadline=None)
many = settings(max_examples=200, deadline=None)
