from .sentences import Piece as Piece, SentenceSplitter as SentenceSplitter, SplitText as SplitText
from .tokenization import Tokenizer as Tokenizer, TokenizerConfig as TokenizerConfig
