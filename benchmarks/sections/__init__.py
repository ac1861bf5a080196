"""Sites whose sections keep hours of their own, played with and without hours of URL groups."""
