"""The HTTP interface: decode, call one use case in one transaction, encode."""
