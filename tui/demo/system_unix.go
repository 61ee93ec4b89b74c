//go:build unix

package demo

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// canStop says that processes can be stopped and be left as zombies.
const canStop = true

// detach puts the command in a session of its own: what is typed on our terminal does not reach it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// onContinue calls f, once, when this process goes on after it was stopped.
func onContinue(f func()) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	go func() {
		<-continued
		f()
	}()
}

// stop stops a child of ours and returns when it stands still.
func stop(child *os.Process) error {
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case status.Stopped():
			return nil
		default:
			// It is reaped now: its pid may belong to anybody, so the handle must not signal it again.
			return errors.Join(errors.New("it died instead of stopping"), child.Release())
		}
	}
}
