"""Commands of the laboratory; `recrawl` finds them by entry points."""
