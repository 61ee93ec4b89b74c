//go:build !unix && !windows

package fslock

import "os"

const (
	guardFileFlags = 0
	guardDirFlags  = 0
)

func unlink(path string) error { return os.Remove(path) }
