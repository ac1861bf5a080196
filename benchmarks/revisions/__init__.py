"""Sites most of whose pages change at once, played by uniform crawling and by Recrawl."""
