"""Text: documents from files, archives and the Hub; sentences; mixtures of corpora."""
