"""Documents as text, Markdown, HTML and JSON. Nothing else knows a format."""
