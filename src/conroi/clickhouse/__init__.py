"""Exports to ClickHouse: a server, or chdb inside this process."""
