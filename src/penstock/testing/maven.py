"""Published jars, resolved by group, name and version through Maven, and kept in the user's cache.

They are got once. A folder is named after its first artifact.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

from penstock.common.errors import PenstockError

Artifact = tuple[str, str, str]

#: Seconds that Maven may take for jars that are not there yet, on a machine that is new and busy.
MAVEN_S = 600.0

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>penstock</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = """
<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>
"""
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class NotResolved(PenstockError):
    """Jars are not there and could not be had; says why."""


def cache_folder() -> Path:
    """Return the folder where jars are kept: ``penstock`` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def jars(*artifacts: Artifact, alone: bool = False) -> Path:
    """Return a folder with published artifacts and all that they depend on.

    Parameters
    ----------
    artifacts : tuple of str
        Group, name and version of each; the folder is named after the first.
    alone : bool
        Leave out what they depend on.

    Raises
    ------
    NotResolved
        When Maven does not find them.
    """
    folder = folder_of(artifacts[0])
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    more = _ALONE if alone else ""
    wanted = "".join(_DEPENDENCY.format(*map(escape, one), more) for one in artifacts)
    # One at a time: Maven's own folder is not made for several.
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            Path(scratch, "pom.xml").write_text(_POM.format(wanted))
            why = _resolve(scratch)
            if why and shutil.which("mvn"):
                # A download that broke off goes on where it was.
                why = _resolve(scratch)
            if why:
                raise NotResolved(f"Maven did not get {':'.join(artifacts[0])}: {why}")
            Path(scratch, "jars").rename(folder)
    return folder


def _resolve(scratch: str) -> str:
    """Have Maven put what the folder's project needs into `jars`; return why it could not."""
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
    try:
        ran = subprocess.run(
            [*copy, "-DincludeScope=runtime"],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=MAVEN_S,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ran.stdout[-800:] if ran.returncode != 0 else ""


def folder_of(artifact: Artifact) -> Path:
    """Return the folder of artifacts of which this is the first."""
    return cache_folder() / "jars" / "-".join(artifact[1:])
