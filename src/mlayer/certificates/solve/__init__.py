"""From bounds to answers: which proof is tried when, and the search for a radius."""
