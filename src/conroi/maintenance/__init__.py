"""Keeping a lake healthy."""
