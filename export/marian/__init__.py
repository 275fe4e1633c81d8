"""Export to Hugging Face's `MarianMTModel`."""
