"""Parts that several experiments use: models, recipes, optimizers, pictures."""
