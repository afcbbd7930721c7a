"""Commit locks for `commit_lock=`, on storage without conditional writes: a file, PostgreSQL, DynamoDB."""
