from .averaging import average as average
from .config import ModelConfig as ModelConfig, RecipeConfig as RecipeConfig, TrainConfig as TrainConfig
from .data.prepare import prepare as prepare
from .data_config import PrepareConfig as PrepareConfig
from .start import train as train
