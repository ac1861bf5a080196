"""The import of a data set as large as that of the paper."""
