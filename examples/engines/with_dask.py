"""Release a sketch and tables of a Dask DataFrame, counted by two workers.

``python examples/engines/with_dask.py``. Needs ``pip install ".[dask]"``.
"""

import dask.dataframe as dd
from common import private_files, release
from distributed import Client, LocalCluster

if __name__ == "__main__":  # the workers are processes that import this file
    with (
        private_files() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(
            cluster
        ),  # fits use the client that was made last; Client("tcp://...") is a real one
    ):
        release(dd.read_parquet(f"{folder}/*.parquet"))
