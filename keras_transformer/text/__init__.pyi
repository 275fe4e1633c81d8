from .files import TextLines as TextLines
from .sentences import TextPart as TextPart, SentenceSplitter as SentenceSplitter, SplitText as SplitText
from .tokenization import Tokenizer as Tokenizer, TokenizerConfig as TokenizerConfig
