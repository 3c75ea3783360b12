"""What several experiments use: models, recipes, optimizers, colors."""
