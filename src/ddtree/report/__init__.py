"""Tables, figures and the LaTeX report, all derived from cell files."""
