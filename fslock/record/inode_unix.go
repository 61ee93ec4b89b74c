//go:build unix

package record

import (
	"io/fs"
	"syscall"
)

// Inode returns the device and inode numbers of a file; ok is false where the system has none.
func Inode(info fs.FileInfo) (dev, ino uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(st.Dev), uint64(st.Ino), true //nolint:unconvert // the widths differ between systems
}
