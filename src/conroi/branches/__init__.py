"""Lake branches for users: create, delete and compare them, and merge one into another."""
