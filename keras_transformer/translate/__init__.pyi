from .alignment import Alignment as Alignment
from .keras_translator import KerasTranslator as KerasTranslator, ModelTranslator as ModelTranslator
from .load import available_runtimes as available_runtimes, load_translator as load_translator
from .protection import ProtectedLine as ProtectedLine, Protection as Protection
from .splitting_translator import SplittingTranslator as SplittingTranslator
from .translation import Translation as Translation
from .translator import Translator as Translator
