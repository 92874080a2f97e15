"""Release a sketch and tables of the result of a query of DuckDB.

``python examples/engines/with_duckdb.py``. Needs ``pip install duckdb ".[arrow]"``.
"""

import duckdb
from common import private_files, release

with private_files() as folder:
    # Each pass runs the query anew, so that it must return the same rows every time.
    release(duckdb.sql(f"SELECT * FROM '{folder}/*.parquet'"))
