"""Integrity checker: verifies all parts of a lake or a table, reports findings, and repairs what is safe.

checks     what is compared, by module: lines, versions, contents, rows, refs, leftovers (of one folder), lake_rows,
           lake_pins (of a lake), store_records, surroundings
findings   the result; `kinds` has the catalogue
examining  the order of the checks
"""

from __future__ import annotations

from conroi.doctor.examination import diagnose, examine_lake, examine_table
from conroi.doctor.findings import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "diagnose", "examine_lake", "examine_table"]
