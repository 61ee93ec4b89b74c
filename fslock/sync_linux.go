package fslock

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData forces the content of f to the disk, and no more of its times than is needed to find it.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
