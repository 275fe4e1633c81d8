"""HTML: its sentences, and the tags in their translations."""
