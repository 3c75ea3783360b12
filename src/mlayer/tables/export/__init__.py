"""Models for other programs: ONNX, and the program that turns raw rows into its inputs."""
