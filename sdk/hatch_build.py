"""Puts the package `horolog` into the SDK's distributions while they are built."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """In the project the package is gathered from it; an sdist has it already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by the build backend before it writes a distribution."""
        del version
        here = Path(self.root)
        if (here / "horolog").is_dir():
            return
        sys.path.insert(0, str(here))
        from collect import collect

        package = here / "build" / "horolog"
        collect(here.parent, package)
        build_data["force_include"][str(package)] = "horolog"
