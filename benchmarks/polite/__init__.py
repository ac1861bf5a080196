"""The import of a data set of the paper's size."""
