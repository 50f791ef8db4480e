"""Files in the package: a small encoder, and the novels and labels of the demo."""
