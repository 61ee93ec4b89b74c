package record

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// renameNoReplace gives a file another name if nothing has that name.
func renameNoReplace(old, name string) error {
	from, err := windows.UTF16PtrFromString(old)
	if err != nil {
		return err
	}
	to, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return err
	}
	if err := windows.MoveFileEx(from, to, 0); err != nil {
		return &os.LinkError{Op: "MoveFileEx", Old: old, New: name, Err: err}
	}
	return nil
}

// openNew makes a file that is not there.
func openNew(path string) (*os.File, error) { return open(path, windows.CREATE_NEW) }

// OpenWrite opens a regular file, and nothing else, for reading and writing.
func OpenWrite(path string) (*os.File, error) {
	f, err := open(path, windows.OPEN_EXISTING)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// open lets others rename and remove the file while it is open, as they can elsewhere.
func open(path string, how uint32) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, how,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// noSuchFunction is what FAT says of a hard link.
func noSuchFunction(err error) bool { return errors.Is(err, windows.ERROR_INVALID_FUNCTION) }
