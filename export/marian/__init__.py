"""Import of MarianMTModel, such as OPUS-MT's, and export to it."""
