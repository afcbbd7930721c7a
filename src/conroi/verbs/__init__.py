"""The verbs of a table, each in a file of its own: do the data work on one version, and say which operation it was.

Nothing here commits. A verb returns a `Plan`; the table (or a transaction) hands it to the commit loop, and calls the
verb again on a newer version if the commit was refused as retryable.
"""
