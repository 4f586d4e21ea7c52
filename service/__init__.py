"""The compile service: orders come in over HTTP, are carried out once by workers, and kept by content."""
