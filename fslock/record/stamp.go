package record

import (
	"errors"
	"io/fs"
	"time"
)

// Stamp tells one state of a file from another without reading it. The zero value is the stamp of no file.
type Stamp struct {
	Dev, Ino uint64 // 0: the system has no such numbers
	Mode     fs.FileMode

	size              int64
	modified, changed int64 // in ns; changed cannot be set by anybody, and moves with whatever is done to the file
}

// Holds reports whether the file at path is still in the state that was stamped, at the latest at look; of the zero
// Stamp, whether there is still none. It reads nothing and follows no link.
//
// False says only that it cannot be told: the file had changed so shortly before look that a later change can have the
// same time, or the system keeps no such times. It is worth nothing on a file system that other machines write to.
func (s Stamp) Holds(path string, look time.Time) bool {
	now, err := StampOf(path)
	if s == (Stamp{}) {
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && now == s && look.Sub(time.Unix(0, s.changed)) >= fresh
}
