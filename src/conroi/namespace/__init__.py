"""A lake as a Lance namespace, for pylance and lancedb."""

from conroi.namespace.namespace import ConroiNamespace

__all__ = ["ConroiNamespace"]
