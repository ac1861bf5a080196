"""The HTTP face: decode, call one use case in one transaction, encode."""
