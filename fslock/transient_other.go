//go:build !unix && !windows

package fslock

// transient: a name that somebody else touches is refused to nobody here.
func transient(error) bool { return false }
