package demo

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// tether lets the command be killed when the calling thread ends: with the process, if its goroutine is locked to it.
func tether(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// awaitExit returns when a child of ours has exited, and does not reap it.
func awaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}
