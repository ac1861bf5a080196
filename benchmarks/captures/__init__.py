"""The worth of captures of an archive to a new fleet, and the speed of their import."""
