"""The desk: takes orders, has each carried out once, and knows what became of every job."""
