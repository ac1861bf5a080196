"""A logical shard of a million pages that moves while it is used."""
