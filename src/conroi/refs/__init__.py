"""References: tags of a table and branch names of a lake, moved by compare-and-swap."""
