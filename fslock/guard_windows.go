package fslock

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

const (
	guardFileFlags = 0
	guardDirFlags  = 0
)

// unlink removes a file. Somebody who has it open for a moment, to read it, makes that fail: it is tried again.
func unlink(path string) error {
	const tries = 50
	for try := 1; ; try++ {
		err := os.Remove(path)
		if !errors.Is(err, windows.ERROR_SHARING_VIOLATION) || try == tries {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// writable: only the attempt tells.
func writable(string) error { return nil }
