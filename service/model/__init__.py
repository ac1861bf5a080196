"""Values that the other packages share: arrays, columns, single pages, URLs, errors."""
