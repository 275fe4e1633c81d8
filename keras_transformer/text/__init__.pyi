from .evaluation import Scores as Scores, evaluate as evaluate, score as score
from .keras_translator import KerasTranslator as KerasTranslator, ModelTranslator as ModelTranslator
from .scorer import PairScore as PairScore, Scorer as Scorer
from .tokenization import Tokenizer as Tokenizer, TokenizerConfig as TokenizerConfig
from .translator import Translation as Translation, Translator as Translator
