"""Optional dependencies: the error for a package that is not installed."""

from __future__ import annotations

from conroi.errors import UnsupportedError


def missing_extra(what: str, extra: str, package: str) -> UnsupportedError:
    """The error for a store whose client library is not installed."""
    return UnsupportedError(
        f"{what} needs the package {package}, which is not installed.",
        hint=f"Install it with: pip install 'conroi[{extra}]'.",
    )
