"""What a scheduled program takes on a described machine: time, links, memory, without hardware and without tensors."""
