"""Fine-tuning: a pretrained model learns to label texts, pairs of texts or words."""
