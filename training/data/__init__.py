"""Training data: tokenized corpora on disk, and batches of packed or bucketed rows."""
