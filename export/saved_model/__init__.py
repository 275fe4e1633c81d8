"""Export to SavedModel, and its client."""
