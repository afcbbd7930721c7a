"""Catalogue of finding kinds: severity, meaning and remedy. The page docs/doctor.md is generated from this."""

from __future__ import annotations

from conroi.doctor.kind import Group, Kind
from conroi.doctor.kinds_around import LAKE_GROUPS, OTHER_GROUPS
from conroi.doctor.kinds_in_tables import TABLE_GROUPS

GROUPS: tuple[Group, ...] = (*TABLE_GROUPS, *LAKE_GROUPS, *OTHER_GROUPS)
KINDS: dict[str, Kind] = {kind.slug: kind for group in GROUPS for kind in group.kinds}
