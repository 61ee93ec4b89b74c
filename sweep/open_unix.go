//go:build unix

package sweep

import (
	"os"

	"golang.org/x/sys/unix"
)

// openDir opens a directory for listing. Without O_DIRECTORY a FIFO that took its name would hold the walk for ever;
// without O_NOFOLLOW a link that took its name would lead out of the root.
func openDir(path string, follow bool) (*os.File, error) {
	flags := unix.O_DIRECTORY | unix.O_NONBLOCK
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	return os.OpenFile(path, flags, 0)
}
