"""MERGE: upserts and conditional updates of a table from a source, in Arrow."""
