"""Trial of feeds: how long a new entry waits for its read, at a learnt rate and at a fixed one."""
