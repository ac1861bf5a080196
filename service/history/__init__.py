"""What was achieved, kept in steps of ten minutes: counting, gauges, rows, reading."""
