package proc

// SourceOf is for tests that put something between a table and its source.
func SourceOf(t *Table) Source { return t.src }
