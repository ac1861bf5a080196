"""What a report or a ping makes of the state of a page."""
