"""Release a sketch and tables of a directory of Parquet files.

``python examples/engines/with_files.py``. Needs pyarrow: ``pip install ".[arrow]"``.
"""

from common import private_files, release

with private_files() as folder:
    release(folder)  # or a pattern such as "data/2024-*.parquet", or a list of files
