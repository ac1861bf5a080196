"""Tools for agents (Model Context Protocol), which ask a running service over HTTP."""
