"""One line of the report."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found out about a package, an extra, a runtime or a backend.

    Args:
        name: of the package, extra, runtime or backend.
        state: `"faulty"` if it is installed but cannot be used.
        detail: its versions or devices, or what is wrong.
        command: the shell command that installs or mends it.
    """

    name: str
    state: Literal["ok", "missing", "faulty"]
    detail: str
    command: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it can be used."""
        return self.state == "ok"
