"""Maintenance: garbage collection, retention, compaction, repair and integrity checks."""
