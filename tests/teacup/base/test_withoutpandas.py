"""Arrow does not import pandas by itself, and still knows it."""

from __future__ import annotations

import subprocess
import sys

IN_A_PROCESS = """
import sys
import numpy as np
import pyarrow as pa
from teacup.base.imports import use_arrow_without_pandas

use_arrow_without_pandas()
pa.array([1, None]), pa.array(np.arange(2)), pa.table({"a": ["b"]})
assert "pandas" not in sys.modules
import pandas as pd
assert pa.array(pd.Series([1, 2])).to_pylist() == [1, 2]
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
assert pa.Table.from_pandas(pd.DataFrame({"a": [1]})).num_rows == 1
"""


def test_arrow_imports_no_pandas_until_it_is_asked_for_it() -> None:
    """In a process of its own: Arrow looks once."""
    subprocess.run([sys.executable, "-c", IN_A_PROCESS], check=True)
