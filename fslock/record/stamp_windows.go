package record

import (
	"io/fs"
	"math"
	"os"
)

// StampOf returns the stamp of whatever is at path; a link is not followed. Its errors are the system's.
func StampOf(path string) (Stamp, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Stamp{}, err
	}
	return stampOf(info), nil
}

// stampOf: every time that is told here can be set, so that no stamp ever holds.
func stampOf(info fs.FileInfo) Stamp {
	return Stamp{
		Mode: info.Mode(), size: info.Size(), modified: info.ModTime().UnixNano(), changed: math.MaxInt64,
	}
}
