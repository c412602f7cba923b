"""Commands about a project's files: made, checked, formatted, converted, evaluated."""
