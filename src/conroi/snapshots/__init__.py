"""Snapshots: one version of a table, loaded, with its storage, its tags and its branches."""
