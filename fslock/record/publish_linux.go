package record

import (
	"os"

	"golang.org/x/sys/unix"
)

// renameNoReplace gives a file another name if nothing has that name.
func renameNoReplace(old, name string) error {
	err := unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, name, unix.RENAME_NOREPLACE)
	if err != nil {
		return &os.LinkError{Op: "renameat2", Old: old, New: name, Err: err}
	}
	return nil
}
