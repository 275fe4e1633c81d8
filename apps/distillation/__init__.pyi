from .config import DistillConfig as DistillConfig
from .pipeline import distill as distill
