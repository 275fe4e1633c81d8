"""Export to a folder of static files that translates in the browser."""
