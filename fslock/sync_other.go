//go:build !linux

package fslock

import "os"

// syncData forces f to the disk.
func syncData(f *os.File) error { return f.Sync() }
