"""What a user wrote, read safely: text, numbers and sympy expressions to exact terms. Runs no code."""
