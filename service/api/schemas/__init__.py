"""The wire format and its OpenAPI document."""
