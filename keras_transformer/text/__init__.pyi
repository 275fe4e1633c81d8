from .alignment import Alignment as Alignment
from .comparison import Comparison as Comparison, compare as compare
from .evaluation import Scores as Scores, evaluate as evaluate, score as score
from .markup.html_text import HtmlText as HtmlText
from .keras_translator import KerasTranslator as KerasTranslator, ModelTranslator as ModelTranslator
from .protection import Protection as Protection
from .scorer import PairScore as PairScore, Scorer as Scorer
from .sentences import Piece as Piece, SentenceSplitter as SentenceSplitter, SplitText as SplitText
from .source_text import SourceText as SourceText
from .splitting_translator import SplittingTranslator as SplittingTranslator
from .tokenization import Tokenizer as Tokenizer, TokenizerConfig as TokenizerConfig
from .translation import Translation as Translation
from .translator import Translator as Translator
