"""Columns and problems, encoded as response bodies."""
