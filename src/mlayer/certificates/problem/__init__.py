"""What is to be certified: region, weights, coordinates, constants of the model, expansion at an input."""
