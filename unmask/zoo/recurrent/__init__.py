"""Published recurrent models."""
