"""The data path over HTTP: real processes, each row of the table beside its floor."""
