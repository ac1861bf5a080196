"""The laboratory of Recrawl: simulated webs, replays, other policies, the papers' experiments."""
