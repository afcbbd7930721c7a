"""Storage: the bytes of tables and lakes on local disk, in memory and in object stores, and clients of databases."""
