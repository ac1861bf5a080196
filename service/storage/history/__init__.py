"""The history in the store: parts and rows of steps, predictions and loads."""
