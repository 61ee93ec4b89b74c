//go:build !unix

package sweep

import (
	"io/fs"
	"os"
	"syscall"
)

// openDir opens a directory for listing. A link that takes its name between the two calls is followed.
func openDir(path string, follow bool) (*os.File, error) {
	info, err := os.Lstat(path)
	if err == nil && !follow && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}
