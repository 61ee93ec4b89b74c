//go:build unix

package tui

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// suspendGrace is how long a stop may take to come.
const suspendGrace = 300 * time.Millisecond

// stopSelf stops this process group as ^z does, and returns when it goes on. It returns false when nothing stopped
// it: a group that no shell of its session could bring back is never stopped, and would wait for ever.
func stopSelf() bool {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(0, syscall.SIGTSTP) != nil {
		return false
	}
	select {
	case <-goesOn:
		return true
	case <-time.After(suspendGrace):
		return false
	}
}
