"""Deterministic simulation: the real commit protocol in one process, on the worst storage that is allowed."""
