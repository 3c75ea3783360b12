"""Reports: results as one self-contained HTML page, with plots that everybody can read."""

from mlayer.report.fit import fit_page
from mlayer.report.page import Page
from mlayer.report.theme import DARK, LIGHT, Theme

__all__ = ["DARK", "LIGHT", "Page", "Theme", "fit_page"]
