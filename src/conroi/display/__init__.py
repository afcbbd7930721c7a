"""Text views of a lake, for the command line and for notebooks."""
