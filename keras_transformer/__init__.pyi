from . import (
    apps as apps,
    decoding as decoding,
    evaluation as evaluation,
    export as export,
    layers as layers,
    losses as losses,
    masks as masks,
    metrics as metrics,
    optimizers as optimizers,
    plotting as plotting,
    schedules as schedules,
    storage as storage,
    text as text,
    training as training,
    translate as translate,
)
from .config import PRESETS as PRESETS, TransformerConfig as TransformerConfig
from .models import (
    Ensemble as Ensemble,
    LanguageModel as LanguageModel,
    SentenceClassifier as SentenceClassifier,
    Transformer as Transformer,
)
from .saving import load_model as load_model
from .version import __version__ as __version__
