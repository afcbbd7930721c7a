"""Spark connector: a catalog written in Scala that forwards every request to Python.

The driver's JVM starts one helper process per lake (`helper`), which answers questions about tables and holds the open
transactions. Executors start workers (`worker`), which read fragments into Arrow streams and write data files from
them. `wire` has the messages between the processes, and `jar` compiles the Scala sources.
"""
