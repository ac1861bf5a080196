"""Bodies and answers that the OpenAPI document shows; tests send and compare them."""
