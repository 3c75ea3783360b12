"""Numerical methods that several packages need: arrays in, arrays out; they know nothing of layers.

    arrays            the names of array types
    torch_memory      arrays as tensors, the same on every run
    waves             sums of waves: least squares for the amplitudes, joint refinement of the rates
    cosine_sine       cosines and sines of many angles
    normal_equations  least squares, of all columns or of some of them
    spectrum          the strongest frequency of unevenly sampled rows
    pencil            damped waves in evenly spaced samples, closer together than a spectrum resolves
    light_optimizers  torch's optimizers without the import of its compiler
    conformal         prediction intervals from errors on unseen rows
    spread            intervals whose width depends on the row
    horizon           intervals of forecasts, which grow with the horizon
    persistence       how far the level of a series wanders
    find_waves        how many waves there are, and which: the one place where frequencies are found

scipy is imported where it is used; the extras that need it name it.
"""
