"""A rough web on this machine: half of its hosts misbehave, and a checker measures the harm."""
