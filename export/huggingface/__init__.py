"""Export of a `LanguageModel` to the files of Hugging Face's decoders, such as Llama and GPT-2."""
