//go:build !unix

package cli

import (
	"os"
	"os/exec"
	"syscall"
)

// ending are the signals that end a wait.
func ending() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// passedOn are the other signals that a command gets in our place: there are none here.
func passedOn() []os.Signal { return nil }

const killedHelp = "A run that is killed leaves its command running, without the hold."

// group is a command. What it starts is not bound to it here: it is neither ended nor told of. A run that is killed leaves
// its command running.
type group struct {
	pid     int
	changes chan change
	process *os.Process
}

// startGroup starts the command. Changes must be received until it has ended.
func startGroup(cmd *exec.Cmd) (*group, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &group{pid: cmd.Process.Pid, changes: make(chan change), process: cmd.Process}
	go func() {
		_ = cmd.Wait() // its state says the same
		g.changes <- change{ended: true, code: cmd.ProcessState.ExitCode()}
	}()
	return g, nil
}

// pass does nothing: the console sends its interrupt to the command, too.
func (g *group) pass(os.Signal) {}

// terminate ends the command: here nobody can ask it to end.
func (g *group) terminate() { g.kill() }

func (g *group) kill() { _ = g.process.Kill() } // it has ended

func (g *group) runs() bool { return false }

func (g *group) suspend(syscall.Signal, <-chan os.Signal, func()) bool { return false }

func (g *group) resume() {}

func (g *group) end(bool) bool { return false }

func (g *group) close() {}

// hasTerminal and dieOfInterrupt: here a console tells all of its processes itself.
func hasTerminal() bool { return false }

func dieOfInterrupt() {}
