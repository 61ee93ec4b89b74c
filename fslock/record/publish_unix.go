//go:build unix

package record

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openNew makes a file that is not there: O_EXCL takes no existing file, not even a dangling link. Package os would
// offer the file to its poller, in five calls, before it learns that files are not polled.
func openNew(path string) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenWrite opens a regular file, and nothing else, for reading and writing: no link is followed, nobody waited for.
func OpenWrite(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

func noSuchFunction(error) bool { return false }
