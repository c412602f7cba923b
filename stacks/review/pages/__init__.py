"""Reviews as documents: Markdown for a pull request, HTML and JSON."""
