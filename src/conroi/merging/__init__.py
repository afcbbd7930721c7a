"""Merge (upsert): combine the rows of a source with a table by key. Builder, key join, clauses, resulting change."""
