"""Version of this package, as written to every manifest."""

from __future__ import annotations

__version__ = "0.1.0"

WRITER = ("conroi", __version__)
