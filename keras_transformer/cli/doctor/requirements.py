"""Checks the requirements of this package. It reads the metadata of the packages and imports none of them."""

import importlib.metadata
from collections.abc import Collection, Mapping
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from keras_transformer.cli.doctor.finding import Finding
from keras_transformer.version import DISTRIBUTION


class Required(NamedTuple):
    """A package that this package or one of its extras requires.

    Attributes:
        requirement: name, versions and extras of the package.
        extra: the extra of this package that requires it; empty for a required package.
    """

    requirement: Requirement
    extra: str

    @property
    def name(self) -> str:
        """The name of the package."""
        return self.requirement.name

    @property
    def command(self) -> str:
        """The shell command that installs it."""
        # pip takes the extras of an installed package from its metadata, wherever it was installed from.
        return f"pip install '{DISTRIBUTION}[{self.extra}]'" if self.extra else f"pip install '{self.requirement}'"


class Requirements:
    """The requirements of this package, from its metadata.

    Attributes:
        by_extra: name of an extra -> the packages that it adds. The empty name has the packages that are
            always required.

    Raises:
        importlib.metadata.PackageNotFoundError: if this package is not installed.
    """

    def __init__(self):
        extras = importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
        self.by_extra = {
            extra: [Required(requirement, extra) for requirement in _requirements(DISTRIBUTION, extra)]
            for extra in ["", *extras]
        }

    def find(self, name: str) -> Required:
        """The requirement of a package: the one without an extra, or else that of the first extra.

        Args:
            name: name of a package that this package or one of its extras requires.
        """
        return next(one for found in self.by_extra.values() for one in found if one.name == name)


def installed_version(name: str) -> str | None:
    """The version of a distribution.

    Args:
        name: name of the distribution.

    Returns:
        The version; `None` if it is not installed, empty if its metadata is damaged.
    """
    try:
        metadata = importlib.metadata.distribution(name).metadata
    except importlib.metadata.PackageNotFoundError:
        return None
    return metadata["Version"] if "Version" in metadata else ""


def check(name: str, needed: Collection[Required], import_errors: Mapping[str, str]) -> Finding:
    """Checks that packages are installed, in the required versions.

    Args:
        name: name of the finding, such as an extra or a runtime.
        needed: the packages.
        import_errors: name of a package -> why it cannot be imported.
    """
    missing, faults, commands = [], [], {}
    for one in needed:
        lacking = _lacks(one.requirement)
        if any(lacking):
            missing, faults = missing + lacking[0], faults + lacking[1]
            commands[one.command] = None
        elif error := import_errors.get(one.name):
            faults.append(f"{one.name} cannot be imported: {error}")
            commands[f"pip install --force-reinstall '{one.requirement}'"] = None
    if not missing and not faults:
        versions = {one.name: installed_version(one.name) for one in needed}
        return Finding(
            name, "ok", versions.get(name) or ", ".join(f"{package} {version}" for package, version in versions.items())
        )
    if missing:
        others = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        faults = [f"not installed: {', '.join(missing[:3])}{others}", *faults]
    return Finding(name, "missing" if missing else "faulty", "; ".join(faults), " && ".join(commands))


def _requirements(distribution, extra):
    """The requirements of a distribution, or those that an extra adds. Their markers are evaluated and removed."""
    found = [Requirement(text) for text in importlib.metadata.requires(distribution) or ()]
    found = [one for one in found if _applies(one, extra) and not (extra and _applies(one, ""))]
    for one in found:
        one.marker = None
    return found


def _applies(requirement, extra):
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _lacks(requirement) -> tuple[list[str], list[str]]:
    """Missing packages, and problems of installed ones, for a requirement and the extras that it names."""
    name, version = requirement.name, installed_version(requirement.name)
    if version is None:
        return [name], []
    try:
        fits = requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return [], [f"{name} has no readable version. Received: {version!r}"]
    if not fits:
        return [], [f"{name} {version} is installed; required is {requirement.specifier}"]
    nested = [_lacks(part) for extra in requirement.extras for part in _requirements(name, extra)]
    return sum((missing for missing, _ in nested), []), sum((faults for _, faults in nested), [])
