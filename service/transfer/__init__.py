"""Pages and states in files: import, export, checkpoints."""
