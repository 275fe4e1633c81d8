"""Import of encoder-decoders of the library transformers, from their files. Reads no pickle."""
