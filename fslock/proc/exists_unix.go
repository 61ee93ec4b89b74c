//go:build unix

package proc

import (
	"errors"
	"syscall"
)

// exists asks with signal 0: only ESRCH says no, a refusal says that there is a process.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
