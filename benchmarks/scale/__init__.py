"""A model of Recrawl over many databases: epochs, reports, leases, network and sizes."""
