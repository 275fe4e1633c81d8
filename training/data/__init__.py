"""Text to batches: tokens in files, rows, packing, buckets."""
