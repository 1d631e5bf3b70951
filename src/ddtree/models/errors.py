"""The one exception of this package: its text is a single line for the user."""


class ModelError(ValueError):
    """A checkpoint is missing, unreadable or does not fit; the message names the file and what is expected."""
