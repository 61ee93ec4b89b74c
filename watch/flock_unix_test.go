//go:build unix

package watch

import (
	"os"
	"syscall"
)

func waitForFlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

// halt stops a process, or lets it go on.
func halt(pid int, stop bool) {
	sig := syscall.SIGCONT
	if stop {
		sig = syscall.SIGSTOP
	}
	_ = syscall.Kill(pid, sig)
}
