"""Reports of a comparison: text, HTML, JSON, CSV."""
