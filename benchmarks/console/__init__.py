"""The console on many pages: its times, its numbers against SQL, and a real browser."""
