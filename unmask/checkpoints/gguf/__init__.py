"""Models as GGUF files, which llama.cpp and programs built on it open."""
