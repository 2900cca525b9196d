"""Applications of the papers with their data, one file each: what Penstock is measured on.

>>> from penstock.apps import apps
>>> apps.names()
('commcount', 'debs2024', 'portrait', 'purchases', 'topn', 'topn-merge', 'wordcount')
"""

from penstock.apps.api import App, apps, latest, register

__all__ = ["App", "apps", "latest", "register"]
