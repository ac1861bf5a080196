"""The state of a service at one instant: live counts, and what needs somebody."""
