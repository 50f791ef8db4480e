"""Published models, each as a value; one file a family."""
