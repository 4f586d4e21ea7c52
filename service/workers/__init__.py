"""What a worker does: reads a program, carries out one order, and gives files back."""
