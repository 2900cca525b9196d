"""The live page: what a metrics store has, as views, as JSON, and in a browser. Read only."""

from pathlib import Path

#: The built files of the page.
STATIC = Path(__file__).parent / "static"
