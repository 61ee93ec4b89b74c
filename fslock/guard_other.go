//go:build !unix && !windows

package fslock

import "os"

const (
	guardFileFlags = 0
	guardDirFlags  = 0
)

func unlink(path string) error { return os.Remove(path) }

// writable: only the attempt tells.
func writable(string) error { return nil }
