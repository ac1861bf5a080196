"""Importers of published data sets."""
