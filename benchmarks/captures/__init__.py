"""What captures of an archive are worth to a new fleet, and how fast they are imported."""
