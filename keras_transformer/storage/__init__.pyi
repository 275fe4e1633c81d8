from .source_text import SourceText as SourceText
