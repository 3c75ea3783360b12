"""Safe readers of user input: text, numbers and sympy expressions to exact terms. Runs no code."""
