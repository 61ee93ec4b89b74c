//go:build unix

package fslock

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// The flags keep a guard's file from being a link, a FIFO in its place from being waited for and a terminal from
// becoming ours. A directory may be reached through a link.
const (
	guardFileFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY
	guardDirFlags  = syscall.O_DIRECTORY | syscall.O_NONBLOCK
)

// unlink removes a file. os.Remove would remove an empty directory as well, if one took the file's place.
func unlink(path string) error {
	for {
		switch err := syscall.Unlink(path); {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EINTR):
			return &fs.PathError{Op: "unlink", Path: path, Err: err}
		}
	}
}

// writable says why names in dir may not be changed; nil if that may be tried.
func writable(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
