"""The version of this software, as it stands in every manifest it writes."""

from __future__ import annotations

__version__ = "0.1.0"

WRITER = ("conroi", __version__)
