"""Schema migrations of the tables that conroi creates in a user's database, as numbered steps."""

from __future__ import annotations

from dataclasses import dataclass

from conroi.errors import UnsupportedError

SCHEMA_TABLE = "conroi_schema"
CREATE_SCHEMA_TABLE = "CREATE TABLE IF NOT EXISTS conroi_schema (component TEXT PRIMARY KEY, version BIGINT NOT NULL)"


@dataclass(frozen=True, slots=True)
class Schema:
    """The statements that migrate from each schema version to the next; never change a released step."""

    component: str
    steps: tuple[tuple[str, ...], ...]

    @property
    def version(self) -> int:
        return len(self.steps)

    def missing(self, found: int, where: str) -> list[str]:
        """The statements that a database at version `found` still needs; UnsupportedError if it is ahead of us."""
        if found > self.version:
            raise UnsupportedError(
                f"The {self.component} in {where} have schema {found}, and this conroi knows schemas up to "
                f"{self.version}.",
                hint="A newer conroi wrote there. Install that version or a newer one.",
            )
        return [statement for step in self.steps[found:] for statement in step]


def missing_extra(what: str, extra: str, package: str) -> UnsupportedError:
    """The error for a store whose client library is not installed."""
    return UnsupportedError(
        f"{what} needs the package {package}, which is not installed.",
        hint=f"Install it with: pip install 'conroi[{extra}]'.",
    )
