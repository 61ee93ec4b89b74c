//go:build unix

package fslock

import (
	"errors"
	"syscall"
)

// transient reports whether the system refuses only because somebody else touches the same name at this moment: a
// network file system says so of a file that another machine has removed since it was opened.
func transient(err error) bool { return errors.Is(err, syscall.ESTALE) }
