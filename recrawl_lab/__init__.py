"""The laboratory of Recrawl: simulated webs, replays, rival policies, the papers' experiments."""
