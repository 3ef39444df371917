"""Printing, paragraphs, what continuous integration reads, and progress."""
