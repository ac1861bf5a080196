"""Reports and registrations, divided over databases."""
