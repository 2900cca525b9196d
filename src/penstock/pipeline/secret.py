"""A password that is named where a pipeline is written, and read where it is used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.common.errors import InvalidValue, NotAllowed
from penstock.common.keywords import class_keywords


@class_keywords
@dataclass(frozen=True)
class Secret:
    """Names an environment variable or a file that holds a password.

    What travels with a pipeline, and what Spark may write on disks of its machines, is the name.
    Driver and executors read the password when they log in, so it must be there for both.

    Examples
    --------
    >>> Secret(file="/run/secrets/kafka")
    Secret(environment='', file='/run/secrets/kafka')

    Parameters
    ----------
    environment : str
        Variable whose value it is.
    file : str
        File whose content it is, without the end of the line.
    """

    environment: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        if bool(self.environment) == bool(self.file):
            allowed = "one of them, the other left out"
            raise InvalidValue(
                "environment, file", "Secret", allowed, (self.environment, self.file)
            )

    def read(self) -> str:
        """Return the password.

        Raises
        ------
        NotAllowed
            When it is not there, or is empty; says where.
        """
        if self.environment:
            found = os.environ.get(self.environment, "")
            where = f"the environment variable {self.environment}"
        else:
            where = f"the file {self.file}"
            try:
                found = Path(self.file).read_text(encoding="utf-8").rstrip("\r\n")
            except OSError as error:
                raise NotAllowed(f"a secret cannot be read here: {error}") from error
        if not found:
            raise NotAllowed(f"a secret is missing on this machine: {where} is empty or not set")
        return found
