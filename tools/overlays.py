"""Python environments with other releases of a few packages, each an overlay on the packages of this one.

An overlay holds only the named packages; everything else, conroi included, is seen through a .pth file, and comes
after them. It takes seconds to make, and is kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import Distribution
from pathlib import Path

NAMESPACE = "lance-namespace"


def overlay(home: Path, requirements: Sequence[str]) -> Path:
    """The interpreter of an environment with these packages, installed without what they depend on."""
    python = home / "bin" / "python"
    if not (home / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(home)], check=True)
        _install(home, requirements)
        shared = [sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], *_sources()]
        added = "; ".join(f"site.addsitedir({folder!r})" for folder in dict.fromkeys(shared))
        (site_of(home) / "zz-shared.pth").write_text(f"import site; {added}\n")
        for program in Path(sys.executable).parent.iterdir():  # the servers that tests start
            if not (home / "bin" / program.name).exists():
                (home / "bin" / program.name).symlink_to(program)
        (home / "done").touch()
    return python


def pylance_overlay(folder: Path, release: str) -> Path:
    """The interpreter of an environment with this release of pylance, and the lance-namespace that it asks for."""
    home = folder / f"pylance-{release}"
    if not (home / "done").exists():
        overlay(home, [f"pylance=={release}"])
        (found,) = site_of(home).glob("pylance-*.dist-info")
        wanted = [line for line in Distribution.at(found).requires or [] if line.startswith(NAMESPACE)]
        range_ = re.sub(r"^lance-namespace\s*|;.*$", "", wanted[0])
        _install(home, [f"{NAMESPACE}{range_}", f"{NAMESPACE}-urllib3-client{range_}"])
    return home / "bin" / "python"


def site_of(home: Path) -> Path:
    return next((home / "lib").glob("python*")) / "site-packages"


def _install(home: Path, requirements: Sequence[str]) -> None:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--prerelease", "allow"]
    subprocess.run([*command, "--target", str(site_of(home)), *requirements], check=True)


def _sources() -> list[str]:
    """Where conroi itself is imported from, if it is not in the site packages."""
    import conroi

    return [str(Path(conroi.__file__).parent.parent)]
