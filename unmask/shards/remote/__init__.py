"""Prepared folders on remote storage: read block by block, through a bounded cache on disk."""
