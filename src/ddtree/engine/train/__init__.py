"""A tiny hybrid model, trained here in about a minute, so that recurrent state can be measured on any machine."""
