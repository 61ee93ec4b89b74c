//go:build !unix

package record

import "io/fs"

// Inode returns the device and inode numbers of a file; ok is false where the system has none.
func Inode(fs.FileInfo) (dev, ino uint64, ok bool) { return 0, 0, false }
