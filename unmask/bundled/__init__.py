"""What ships in the package: a small encoder, the novels and labels of the demo."""
