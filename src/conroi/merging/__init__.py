"""Merge: bring rows of a source into a table by key. The builder, the matching, the clauses, the change they make."""
