"""Cleaning of corpora: filters for pairs of a crawled corpus."""
