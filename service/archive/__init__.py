"""Old days of the observation log in Parquet files, under a path or an address of fsspec.

The files are columns without a rule. The database decides which files count (`storage.log`).
"""
