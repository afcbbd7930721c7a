"""Every kind of finding: how bad it is, what it means, and what to do. The page docs/doctor.md is made from this."""

from __future__ import annotations

from conroi.maintenance.doctor.kind import Group, Kind
from conroi.maintenance.doctor.kinds_around import LAKE_GROUPS, OTHER_GROUPS
from conroi.maintenance.doctor.kinds_in_tables import TABLE_GROUPS

GROUPS: tuple[Group, ...] = (*TABLE_GROUPS, *LAKE_GROUPS, *OTHER_GROUPS)
KINDS: dict[str, Kind] = {kind.slug: kind for group in GROUPS for kind in group.kinds}
