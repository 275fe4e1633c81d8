"""Import and export of Hugging Face's MarianMTModel, such as the OPUS-MT models."""
