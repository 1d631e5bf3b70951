"""DDTree itself: best-first tree, masks and positions, acceptance walk, cache compaction. Pure torch, no engine."""
