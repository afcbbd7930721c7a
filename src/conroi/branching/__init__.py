"""Branches of a lake as its users meet them: making and ending them, comparing them, and merging one into another."""
