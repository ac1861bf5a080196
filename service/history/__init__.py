"""The history: achievements in steps of ten minutes, counted, measured and read."""
