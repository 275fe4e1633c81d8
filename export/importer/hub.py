"""Models of the Hugging Face Hub, downloaded with the library huggingface_hub."""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.checks import needs, require
from keras_transformer.export.importer.config import find_family, read_config, tokenizer_problems
from keras_transformer.export.importer.json_files import read_fields, reading
from keras_transformer.export.importer.piece_ids import SETTINGS, tokenizer_files
from keras_transformer.export.importer.weights import WEIGHTS, parts_of_weights, require_reader

_NAME = re.compile(r"hf://([^/@\s]+/[^/@\s]+)(?:@(\S+))?")


def locate(directory: str | Path) -> tuple[Path, str | None]:
    """The folder of a model. A model of the Hugging Face Hub is downloaded to the cache of huggingface_hub.

    Only files that the importer reads are downloaded, and weights only if config.json describes a supported model.
    Complete files in the cache are used again.

    Args:
        directory: a folder, or `hf://owner/name[@revision]`, where the revision is a branch, a tag or a commit.

    Returns:
        The folder; and `hf://owner/name@commit` for a model of the hub, `None` for a folder.

    Raises:
        ValueError: if the folder does not exist, the name is malformed, a package that reads the model is not
            installed, a file cannot be downloaded or does not have the checksum of the hub, or the model is not
            supported. A file with a wrong checksum is deleted.
    """
    if not str(directory).startswith("hf://"):
        if not Path(directory).is_dir():
            raise ValueError(
                "`directory` must be a folder, or hf://owner/name for a model of the Hugging Face Hub. "
                f"Received: directory={directory}"
            )
        return Path(directory), None
    name = _NAME.fullmatch(str(directory))
    if name is None:
        raise ValueError(
            "A model of the Hugging Face Hub must have a name such as hf://owner/name or hf://owner/name@revision. "
            f"Received: {directory}"
        )
    with needs("hub"):
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError
    api, (repository, revision) = HfApi(), name.groups()
    try:
        info = api.model_info(repository, revision=revision, files_metadata=True)
        files = {file.rfilename: file for file in info.siblings or ()}
        download = functools.partial(api.hf_hub_download, repository, revision=info.sha)
        model = _Model(f"hf://{repository}@{info.sha}", files, download)
        return _download(model), model.name
    except (OSError, HTTPError) as error:
        raise ValueError(f"{directory} cannot be downloaded: {_reason(error)}") from error


class _Model(NamedTuple):
    """A model of the hub.

    Attributes:
        name: `hf://owner/name@commit`.
        files: name of a file -> its metadata.
        download: name of a file -> its path in the cache. A file that is not there is downloaded.
    """

    name: str
    files: Mapping[str, Any]
    download: Callable[[str], str]

    def fetch(self, file: str) -> Path:
        """Downloads a file and compares its checksum."""
        path = Path(self.download(file))
        found, expected = _checksums(path, self.files[file])
        if expected is not None and found != expected:
            path.resolve().unlink()  # In the cache, `path` is a link to the file.
            raise ValueError(
                f"{file} of {self.name} is damaged, so it was deleted. Repeat the import to download it again. "
                f"Its checksum must be {expected}. Received: {found}"
            )
        return path

    def read(self, file: str, function: Callable[[Path], Any]) -> Any:
        """Downloads a file and reads it."""
        path = self.fetch(file)
        try:
            return reading(function, path)
        except ValueError as error:
            raise ValueError(f"{file} of {self.name} cannot be read: {error}") from error


def _download(model: _Model) -> Path:
    """Downloads the files of the importer. Those that the repository lacks are reported when the folder is read."""
    if "config.json" not in model.files:
        raise ValueError(f"{model.name} cannot be imported: config.json is missing")
    config = model.read("config.json", read_fields)
    family, problems = find_family(config)
    require(problems or read_config(config, family)[1], of=f"{model.name} cannot be imported")
    for file in sorted(tokenizer_files(family.vocabulary, model.files) & {*model.files}):
        model.fetch(file)
    settings = model.read(SETTINGS, read_fields) if SETTINGS in model.files else {}
    require(tokenizer_problems({**config, **settings}, family, model.files), of=f"{model.name} cannot be imported")
    weights = next((file for file in WEIGHTS if file in model.files), None)
    if weights:
        require_reader(weights)
        for file in model.read(weights, parts_of_weights):
            if file in model.files:
                model.fetch(file)
    return model.fetch("config.json").parent


def _checksums(path: Path, metadata: Any) -> tuple[str, str | None]:
    """The checksum of a file, and that of the hub: SHA-256 for large files, the id of Git's object for others."""
    if metadata.lfs is not None:
        start, expected = hashlib.sha256, metadata.lfs.sha256
    else:
        start, expected = lambda: hashlib.sha1(b"blob %d\0" % path.stat().st_size), metadata.blob_id
    with path.open("rb") as content:
        return hashlib.file_digest(content, start).hexdigest(), expected


def _reason(error: Exception) -> str:
    """Why a download has failed."""
    from huggingface_hub import errors

    reasons = {
        errors.GatedRepoError: "the repository is gated. Request access on its page, and set HF_TOKEN",
        errors.RepositoryNotFoundError: "the repository does not exist or is private. HF_TOKEN gives access",
        errors.RevisionNotFoundError: "the revision does not exist",
    }
    found = (reason for kind, reason in reasons.items() if isinstance(error, kind))
    return next(found, f"{type(error).__name__}: {' '.join(str(error).split())}")
