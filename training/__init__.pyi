from .averaging import average as average
from .cleaning.config import CleaningConfig as CleaningConfig
from .config import ModelConfig as ModelConfig, TrainConfig as TrainConfig
from .data.prepare import prepare as prepare
from .data_config import (
    AugmentationConfig as AugmentationConfig,
    DataConfig as DataConfig,
    PrepareConfig as PrepareConfig,
)
from .dataset import make_dataset as make_dataset
from .datasets import load_corpus as load_corpus
from .datasets.pairs import Corpus as Corpus, Pairs as Pairs
from .mixture_config import CorpusConfig as CorpusConfig, StageConfig as StageConfig
from .recipe_config import RecipeConfig as RecipeConfig
from .start import train as train
from .stopping import (
    Diverged as Diverged,
    Interrupted as Interrupted,
    WorkerLost as WorkerLost,
    WorkerStopped as WorkerStopped,
)
from .validation_bleu import ValidationBleu as ValidationBleu
