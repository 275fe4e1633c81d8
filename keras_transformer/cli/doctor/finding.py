"""One line of the report."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Finding:
    """The state of a package, an extra, a runtime or a backend.

    Args:
        name: name of the package, extra, runtime or backend.
        state: `"ok"`, `"missing"`, or `"faulty"` if it is installed but cannot be used.
        detail: the versions or devices, or the problem.
        command: the shell command that installs or repairs it.
    """

    name: str
    state: Literal["ok", "missing", "faulty"]
    detail: str
    command: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it can be used."""
        return self.state == "ok"
