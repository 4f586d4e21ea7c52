"""What a collective means, and the transports that perform it."""
