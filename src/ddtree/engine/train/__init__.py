"""A tiny hybrid model and its drafter, trained here, so that recurrent state can be measured on any machine."""
