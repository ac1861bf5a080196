"""Invalid and hostile requests, and rules for the answers to them."""
