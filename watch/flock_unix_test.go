//go:build unix

package watch

import (
	"os"
	"syscall"
)

func waitForFlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
