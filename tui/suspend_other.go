//go:build !unix

package tui

// stopSelf reports that a process cannot be stopped from its terminal here.
func stopSelf() bool { return false }
