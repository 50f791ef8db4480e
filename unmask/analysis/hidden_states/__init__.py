"""What hidden states of layers hold: tokens, similarity to those of another model, contexts."""
