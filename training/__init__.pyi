from .averaging import average as average
from .config import ModelConfig as ModelConfig, TrainConfig as TrainConfig
from .data.prepare import prepare as prepare
from .data_config import PrepareConfig as PrepareConfig
from .dataset import make_dataset as make_dataset
from .recipe_config import RecipeConfig as RecipeConfig
from .start import train as train
from .stopping import Diverged as Diverged, Interrupted as Interrupted, WorkerLost as WorkerLost
from .validation_bleu import ValidationBleu as ValidationBleu
