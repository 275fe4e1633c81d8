from . import (
    apps as apps,
    cli as cli,
    decoding as decoding,
    distribution as distribution,
    evaluation as evaluation,
    export as export,
    layers as layers,
    losses as losses,
    masks as masks,
    metrics as metrics,
    models as models,
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
    MaskedLanguageModel as MaskedLanguageModel,
    SentenceClassifier as SentenceClassifier,
    Seq2Seq as Seq2Seq,
    Transformer as Transformer,
    mask_tokens as mask_tokens,
)
from .saving import load_model as load_model
from .version import __version__ as __version__
