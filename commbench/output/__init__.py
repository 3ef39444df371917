"""Printing, tables, paragraphs, Markdown, JUnit XML, progress, and the style of plots."""
