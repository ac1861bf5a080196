"""The stores: the subjects put together, with what opens, leads and checks a database."""
