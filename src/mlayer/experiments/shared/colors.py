"""The colors of the experiments' pictures: Okabe and Ito's, which color-blind readers can distinguish.

The same kind of model has the same color in all of them. Okabe and Ito, "Color universal design" (2008).
"""

from __future__ import annotations

M_LAYER = "#0072B2"
M_LAYER_OF_OTHERS = "#56B4E9"  # the paper's recipe, the notebook's
NET = "#D55E00"
GREEN, PINK = "#009E73", "#CC79A7"  # models that are not networks
PAPER = "#D55E00"  # what the paper reports or proves, where no net is shown with it
