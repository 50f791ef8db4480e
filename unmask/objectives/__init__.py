"""Text is hidden: tokens chosen, concealed, asked for; examples become batches in a fixed order."""
