"""Maps the folders `training/`, `export/` and `apps/` into the package. All other settings are in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {
    "keras_transformer.training": "training",
    "keras_transformer.export": "export",
    "keras_transformer.apps": "apps",
}


def subpackages(name, folder):
    """The import names of a package and of the packages below its folder."""
    return [name, *(f"{name}.{package}" for package in find_packages(folder))]


setup(
    package_dir=FOLDERS,
    packages=[
        *find_packages(include=["keras_transformer", "keras_transformer.*"]),
        *(package for name, folder in FOLDERS.items() for package in subpackages(name, folder)),
    ],
    package_data={
        "keras_transformer": ["py.typed"],
        "keras_transformer.export.web": ["static/*"],
        "keras_transformer.apps.serve": ["static/*"],
    },
)
