from .config import ServeConfig as ServeConfig
from .pairs import LanguagePair as LanguagePair, TranslatedText as TranslatedText
from .server import load_app as load_app, serve as serve
