"""The skeleton of every HTML page: one file that loads nothing, and runs only its own script."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.common.errors import PenstockError
from penstock.report.style import STYLE
from penstock.report.text import escape

#: Nothing may be loaded and no script may run, whatever a name in the data says.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(
    title: str,
    parts: Iterable[str],
    *,
    head: str = "",
    style: str = STYLE,
    policy: str = POLICY,
) -> str:
    """Write a page of its parts, empty ones left out.

    Parameters
    ----------
    title : str
        Plain text.
    parts : iterable of str
        What stands in the body, as HTML.
    head : str
        More of the head, as HTML.
    style : str
        Its style sheet.
    policy : str
        What a browser may load and run; by default nothing but the style.
    """
    return (
        '<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" lang="en">\n<head>\n'
        '<meta charset="utf-8"/>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n{head}"
        "</head>\n<body>\n" + "\n".join(part for part in parts if part) + "\n</body>\n</html>\n"
    )


def write_page(path: str | Path, text: str) -> None:
    """Write a page into a file.

    Raises
    ------
    PenstockError
        When the file cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PenstockError(f"report {path} cannot be written: {error.strerror}") from None
