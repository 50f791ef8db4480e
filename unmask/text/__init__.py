"""Text in: documents, one by one, whatever they are stored in, and the sentences of a paragraph."""
