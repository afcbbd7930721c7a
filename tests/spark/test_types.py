"""Types between Arrow and Spark, for every supported release of PySpark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from conroi.spark import types
from tests.spark.support import SPARK

STRUCT = st.StructType([st.StructField("at", st.TimestampType()), st.StructField("local", st.TimestampNTZType())])
EXPECTED = pa.schema({"at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us")})


def test_timestamps_are_utc_also_in_a_pyspark_without_the_argument_timezone(monkeypatch: pytest.MonkeyPatch):
    """PySpark 4.1 has `timestamp_utc`, true by default, where later releases have `timezone`."""
    if SPARK < (4, 2):  # the real one
        assert types.arrow_schema(STRUCT) == EXPECTED
        return
    newer = types.to_arrow_schema

    def of_4_1(
        schema: st.StructType,
        error_on_duplicated_field_names_in_struct: bool = False,
        timestamp_utc: bool = True,
        prefers_large_types: bool = False,
    ) -> pa.Schema:
        assert timestamp_utc
        assert not error_on_duplicated_field_names_in_struct
        return newer(schema, timezone="UTC", prefers_large_types=prefers_large_types)

    assert types.arrow_schema(STRUCT) == EXPECTED
    monkeypatch.setattr(types, "to_arrow_schema", of_4_1)
    assert types.arrow_schema(STRUCT) == EXPECTED
