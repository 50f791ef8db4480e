"""Models as ONNX graphs: export, quantization to 8 bits, and inference by onnxruntime."""
