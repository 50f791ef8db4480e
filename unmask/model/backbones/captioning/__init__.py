"""Networks that read a picture and write a text about it."""
