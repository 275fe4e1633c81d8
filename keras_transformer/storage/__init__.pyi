from .languages import Direction as Direction, Languages as Languages
from .model_directory import ModelDirectory as ModelDirectory
from .origin import hash_of_program as hash_of_program
from .recorded_folder import ModelDirectoryError as ModelDirectoryError
from .resumable_file import ResumableFile as ResumableFile
from .source_text import SourceText as SourceText
from .token_directory import TokenDirectory as TokenDirectory
