//go:build unix

package tui

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
)

// suspendGrace is how long a stop may take to come.
const suspendGrace = 300 * time.Millisecond

// stopSignals are the requests to stop from elsewhere than the keyboard. Unheard, one would stop the screen with what it
// holds, and with the terminal as the screen has it.
func stopSignals() (stops <-chan os.Signal, ignore func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTSTP)
	return c, func() { signal.Stop(c) }
}

// stopSelf stops this process group as ^z does, and returns when it goes on. It returns false when nothing stopped
// it: a group that no shell of its session could bring back is never stopped, and would wait for ever.
//
// SIGSTOP does it, for a process that has once listened to SIGTSTP cannot leave that to the system again.
func stopSelf() bool {
	if !hasShell() {
		return false
	}
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(0, syscall.SIGSTOP) != nil {
		return false
	}
	select {
	case <-goesOn:
		return true
	case <-time.After(suspendGrace):
		return false
	}
}

// hasShell reports whether an ancestor outside this process's group, but of its session, is there to make it go on. What
// cannot be seen is not.
func hasShell() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	outside := func(pid int) (is, shell bool) {
		group, err := unix.Getpgid(pid)
		if err != nil || group == unix.Getpgrp() {
			return err != nil, false
		}
		other, err := unix.Getsid(pid)
		return true, err == nil && other == session
	}
	if is, shell := outside(os.Getppid()); is {
		return shell
	}
	self, err := proc.Local().Describe(os.Getpid())
	if err != nil {
		return false
	}
	for _, parent := range self.Parents {
		if is, shell := outside(parent.PID); is {
			return shell
		}
	}
	return false
}
