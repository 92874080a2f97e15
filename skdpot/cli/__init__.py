"""The program ``skdpot``: one module per command, loaded when the command runs.

Read `main` first: it parses the command line, shows errors without private values, and runs
``run_NAME`` of the module ``NAME``: `schema`, `synth`, `report`, `budget`, `distance` or `ui`. They
share `console` (output, output files, refusals), `payment` (the ledger that pays), `table_files`
(CSV and Parquet), `schemas` (confirmed schemas) and `conditions` (``--where``).
"""
