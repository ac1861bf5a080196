"""What holds a page now: the rules in words and values, and what they read from the store."""
