"""The store on Postgres, for any number of processes."""
