"""Values that travel between the rooms: arrays, columns, single pages, URLs, errors."""
