"""HLO text: reader, printer and the comparison of two modules as they would be written."""
