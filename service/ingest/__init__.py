"""Changes of the states of pages by reports and pings."""
