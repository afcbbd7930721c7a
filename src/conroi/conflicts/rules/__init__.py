"""Conflict rules for pairs whose outcome depends on their facts, grouped by what the two may have in common."""
