"""The problem to certify: region, weights, coordinates, constants of the model, expansion at an input."""
