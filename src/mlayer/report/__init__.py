"""Reports: results as one self-contained HTML page, with plots that everybody can read."""

from mlayer.report.fit import fit_page

__all__ = ["fit_page"]
