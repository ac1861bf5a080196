"""The views of the console: each reads bounded parts of the database and fills a template."""
