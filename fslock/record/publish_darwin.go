package record

import (
	"os"

	"golang.org/x/sys/unix"
)

// renameNoReplace gives a file another name if nothing has that name.
func renameNoReplace(old, name string) error {
	if err := unix.RenamexNp(old, name, unix.RENAME_EXCL); err != nil {
		return &os.LinkError{Op: "renamex_np", Old: old, New: name, Err: err}
	}
	return nil
}
