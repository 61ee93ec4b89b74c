package demo

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// canStop says that processes can be stopped and be left as zombies.
const canStop = false

// detach puts the command in a process group of its own: ^C on our console does not reach it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// onContinue is never called, nor is stop: no scenario that needs them is there.
func onContinue(func()) {}

func stop(*os.Process) error { return errors.ErrUnsupported }
