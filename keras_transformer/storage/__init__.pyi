from .model_directory import ModelDirectory as ModelDirectory
from .source_text import SourceText as SourceText
