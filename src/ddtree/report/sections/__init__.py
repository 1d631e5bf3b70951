"""The report's sections, one module each; each has `write(document, context)`."""
