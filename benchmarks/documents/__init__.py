"""Documents as strangers write them: made up and broken by rules, so that the entries are known."""
