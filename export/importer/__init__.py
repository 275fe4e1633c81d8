"""Import of encoder-decoders of the library transformers, from their files."""
