"""The rules for pairs that do not always end the same way, grouped by what the two may have in common."""
