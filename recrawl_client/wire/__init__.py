"""The wire format: one struct per item and answer, shared by the service and the client."""
