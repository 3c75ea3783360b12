"""The question: region, weights, coordinates, constants of the model, expansion at an input."""
