package fslock

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// transient reports whether the system refuses only because somebody else touches the same name at this moment.
func transient(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, syscall.ERROR_ACCESS_DENIED)
}
