"""Printing, tables, paragraphs, Markdown, JUnit and plots' style; imports host, units and below."""
