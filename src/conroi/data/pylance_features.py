"""Which releases of pylance are supported, and what the installed one can do. Features are probed, not inferred.

A release that is newer than the tested ones is used, with one warning. What it writes that conroi does not know is
refused by feature flag (`format.flags`). An older release may not know a flag that conroi knows: it is asked once.
"""

from __future__ import annotations

import warnings
from functools import cache

from conroi.errors import UnsupportedError, UntestedPylanceWarning
from conroi.format import lance_pb2 as pb
from conroi.format.flags import described, extraordinary_reader_bits

TESTED = (12, 13, 14)
"""The major versions that `make ring` runs."""
_TOO_NEW = "cannot be read by this version of Lance"
"""What pylance says of a feature that it does not know."""


def is_tested(release: str) -> bool:
    """Whether the suites were run with this major version.

    >>> is_tested("14.0.2"), is_tested("11.0.0"), is_tested("15.0.0b1")
    (True, False, False)
    """
    return _major(release) in TESTED


@cache
def installed() -> str:
    """The version of the installed pylance."""
    import lance

    return lance.__version__


@cache
def warn_if_untested() -> None:
    """Warn once in a process if the installed pylance is newer than the tested releases."""
    if _major(installed()) > max(TESTED):
        warnings.warn(
            f"pylance {installed()} is newer than the releases that this conroi was tested with "
            f"({TESTED[0]} to {TESTED[-1]}). Tables that need a feature which conroi does not know are refused.",
            UntestedPylanceWarning,
            stacklevel=2,
        )


def require_known_flags(head: pb.ManifestHead, table: str) -> None:
    """Refuse a table that needs a feature which conroi knows and the installed pylance does not."""
    unknown = sum(bit for bit in extraordinary_reader_bits(head) if not knows_reader_flag(bit))
    if unknown:
        raise UnsupportedError(
            f"The installed pylance {installed()} cannot read the table: its reader flags ask for "
            f"{described(unknown)}.",
            table=table,
            hint=f"Install pylance {TESTED[-1]}.",
        )


@cache
def knows_reader_flag(bit: int) -> bool:
    """Probe: whether pylance opens a table without rows that asks for this feature. No I/O."""
    import lance

    manifest = pb.Manifest(version=1, reader_feature_flags=bit, writer_feature_flags=bit)
    manifest.fields.add(name="a", id=0, parent_id=-1, logical_type="int64", nullable=True)
    manifest.data_format.file_format, manifest.data_format.version = "lance", "2.1"
    message = manifest.SerializeToString()
    try:
        lance.LanceDataset("memory://conroi-probe", version=1, serialized_manifest=message)
    except (OSError, ValueError, NotImplementedError) as error:
        return _TOO_NEW not in str(error)  # any other refusal is about the probe: the table itself will tell
    return True


def _major(release: str) -> int:
    digits = release.partition(".")[0]
    return int(digits) if digits.isdigit() else 0
