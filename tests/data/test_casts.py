"""Values in another type: what has an equal there is cast, what has none is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from conroi.data.arrow_types import cast_array


def test_an_integer_becomes_the_float_that_is_equal() -> None:
    """pyarrow refuses every integer above 2**24 for a float of 32 bits."""
    converted = cast_array(pa.array([2**40, None, -3, 2**24 + 2]), pa.float32())
    assert converted.type == pa.float32()
    assert converted.to_pylist() == [1099511627776.0, None, -3.0, 16777218.0]


@pytest.mark.parametrize(("value", "type_"), [(2**40 + 1, pa.float32()), (2**63 - 1, pa.float64())])
def test_an_integer_without_an_equal_float_is_refused(value: int, type_: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast_array(pa.array([1, value]), type_)
