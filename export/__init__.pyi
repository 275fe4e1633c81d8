from .config import ExportConfig as ExportConfig
from .ctranslate2.translator import CTranslate2Translator as CTranslate2Translator
from .huggingface.export import export_huggingface as export_huggingface
from .importer.importer import (
    Checkpoint as Checkpoint,
    import_checkpoint as import_checkpoint,
    read_checkpoint as read_checkpoint,
)
from .interop.torch import import_torch_transformer as import_torch_transformer
from .onnx.translator import OnnxTranslator as OnnxTranslator
from .pipeline import export as export
from .pipeline import export_model as export_model
from .saved_model.translator import SavedModelTranslator as SavedModelTranslator
from .verify.equality import Agreement as Agreement, VerificationError as VerificationError
from .verify.outputs import OutputAgreement as OutputAgreement
from .verify.quality import LikelihoodReport as LikelihoodReport
from .verify.samples import SampleAgreement as SampleAgreement
