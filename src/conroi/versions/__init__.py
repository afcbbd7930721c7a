"""Version stores: where the versions of one table are recorded, and how a new one is created atomically."""
