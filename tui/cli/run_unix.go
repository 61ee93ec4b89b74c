//go:build unix

package cli

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"holdfast/fslock/proc"
)

// ending are the signals that end a wait.
func ending() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

// passedOn are the other signals that a command gets in our place. TSTP is one of them: who is stopped renews nothing, and
// must not be stopped while the command runs.
func passedOn() []os.Signal {
	return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP}
}

// group is a command in a process group of its own, which has the terminal while we would have it. What the terminal
// sends then goes to the group alone; what we get, it did not.
type group struct {
	pid     int // of the command, and its process group
	changes chan change
	tty     int  // descriptor of the controlling terminal; -1: there is none
	own     int  // our own process group
	wants   bool // the command is to have the terminal

	before *term.State // the terminal's modes as the command found them; nil: it never had it
	modes  *term.State // the command's, while it is stopped; nil: it is not, or had not the terminal
}

// startGroup starts the command. Changes must be received until it has ended.
func startGroup(cmd *exec.Cmd) (*group, error) {
	g := &group{changes: make(chan change), own: syscall.Getpgrp()}
	var err error
	if g.tty, err = unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0); err != nil {
		g.tty = -1
	}
	// Between a terminal and a pipe, others of our group may need it more, such as a pager: then it is given to the
	// command when that asks for it.
	g.wants = g.tty >= 0 && isTerminal(cmd.Stdin) && isTerminal(cmd.Stdout)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	asks := make(chan os.Signal, 1)
	if g.tty >= 0 && g.foreground() == g.own {
		g.look()
		if g.wants {
			// Before the command begins: it might read at once.
			cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, g.tty
		}
		// What a command inherits as ignored, as from a shell's $(...), it could not ask with: it would be refused instead.
		// What is caught here, it does not inherit.
		signal.Notify(asks, syscall.SIGTTIN, syscall.SIGTTOU)
	}
	dieWithUs(cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// The command is killed when the thread ends that started it. So this one is nobody else's, and lives as long.
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			g.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			g.follow(cmd)
		}
	}()
	err = <-started
	signal.Stop(asks)
	if g.tty >= 0 {
		// Who has not the terminal is stopped when he gives it away, and may be when he writes there. The command must not
		// inherit this: it runs already.
		signal.Ignore(syscall.SIGTTOU)
	}
	if err != nil {
		if cmd.SysProcAttr.Foreground {
			g.hand(g.own)
		}
		g.close()
		return nil, err
	}
	return g, nil
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd()))
}

// follow tells each change, the end as the last one.
func (g *group) follow(cmd *exec.Cmd) {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(g.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			g.changes <- change{ended: true, code: codeFailed} // somebody else took its code
		case status.Stopped():
			g.changes <- change{by: status.StopSignal()}
			continue
		case status.Signaled():
			g.changes <- change{ended: true, code: codeSignal + int(status.Signal()), by: status.Signal()}
		default:
			g.changes <- change{ended: true, code: status.ExitStatus()}
		}
		_ = cmd.Wait() // of the process there is nothing left to be told; what is copied for it is done then
		return
	}
}

// pass hands a signal on.
func (g *group) pass(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	if s == syscall.SIGCONT {
		g.resume()
		return
	}
	g.signal(s)
	if slices.Contains(ending(), sig) {
		g.resume() // who is stopped does not hear it
	}
}

// resume lets the command go on, with the terminal if that is ours to give.
func (g *group) resume() {
	if g.wants && g.foreground() == g.own {
		if g.before == nil {
			g.look()
		}
		g.hand(g.pid)
		g.set(g.modes)
		g.modes = nil
	}
	g.signal(syscall.SIGCONT)
}

func (g *group) signal(s syscall.Signal) {
	if syscall.Kill(-g.pid, s) != nil {
		_ = syscall.Kill(g.pid, s) // it has gone to another group; or it has ended
	}
}

// terminate asks all of the group to end, those that are stopped among them. Who uses the terminal at its end would be
// stopped again without it.
func (g *group) terminate() {
	g.signal(syscall.SIGTERM)
	g.resume()
}

func (g *group) kill() { g.signal(syscall.SIGKILL) }

// runs reports whether anything of the group runs.
func (g *group) runs() bool {
	return !errors.Is(syscall.Kill(-g.pid, 0), syscall.ESRCH) && !proc.GroupEnded(g.pid)
}

// suspend does what a stop of the command asks for, and reports whether the command is to go on now. It calls say
// before it stops ourselves, and takes the CONT by which we go on out of signals: passed on late, that could let the
// command go on after its next stop.
func (g *group) suspend(by syscall.Signal, signals <-chan os.Signal, say func()) bool {
	now := g.foreground()
	asks := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	switch {
	case g.tty < 0:
		return false // whoever stopped it lets it go on
	case asks && (now == g.own || now == g.pid):
		g.wants = true
		return true
	case by != syscall.SIGTSTP && !asks && now != g.pid:
		return false // it was meant alone: nobody waits for a prompt
	}
	if session, err := unix.Getsid(0); err != nil || session == g.own {
		// No shell could let us go on. The system refuses such a stop, too, where it knows.
		return !asks
	}
	// Nothing of it may run while nobody keeps the hold: neither what does not heed the stop, nor what somebody let go on
	// meanwhile.
	g.signal(syscall.SIGSTOP)
	if g.takeBack() {
		g.modes, _ = term.GetState(g.tty) // nil: nothing is put back
		g.set(g.before)
	}
	// An earlier CONT is not the one. What may end the command lets it go on: then we do, too.
	if g.passUntil(signals, false) {
		return true
	}
	say()
	if syscall.Kill(0, syscall.SIGSTOP) == nil {
		g.passUntil(signals, true)
	}
	if g.foreground() == g.own {
		g.look() // the shell may have other modes for us now
	}
	return true
}

// passUntil hands on the signals that are there, or all until a CONT comes; but no CONT. It reports whether one of them
// lets the command go on.
func (g *group) passUntil(signals <-chan os.Signal, goesOn bool) (resumed bool) {
	for goesOn || len(signals) > 0 {
		if sig := <-signals; sig != syscall.SIGCONT {
			g.pass(sig)
			resumed = resumed || slices.Contains(ending(), sig)
		} else if goesOn {
			break
		}
	}
	return resumed
}

// end takes the terminal back from a command that has ended, and reports whether it or we had it. What a signal ended could
// not put the terminal's modes back, and left it raw, perhaps.
func (g *group) end(bySignal bool) (had bool) {
	had = g.foreground() == g.own
	if g.takeBack() {
		had = true
		if bySignal {
			g.set(g.before)
		}
	}
	return had
}

// takeBack takes the terminal from the command if it has it, and reports that.
func (g *group) takeBack() bool {
	if g.foreground() != g.pid {
		return false
	}
	g.hand(g.own)
	return true
}

// look keeps the terminal's modes as they are while it is ours.
func (g *group) look() { g.before, _ = term.GetState(g.tty) } // nil: nothing is put back

func (g *group) set(modes *term.State) {
	if modes != nil {
		_ = term.Restore(g.tty, modes) // a terminal that is gone has none
	}
}

// foreground is the process group that has the terminal; -1: that cannot be told.
func (g *group) foreground() int {
	pgrp, err := unix.IoctlGetInt(g.tty, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return pgrp
}

// hasTerminal reports whether a terminal's ^C reaches us: our group is its foreground one.
func hasTerminal() bool {
	tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(tty) }()
	return (&group{tty: tty}).foreground() == syscall.Getpgrp()
}

// dieOfInterrupt ends this process by INT, unless that is ignored.
func dieOfInterrupt() {
	signal.Reset(syscall.SIGINT)
	if syscall.Kill(syscall.Getpid(), syscall.SIGINT) == nil {
		time.Sleep(answerLimit) // another thread gets it
	}
}

func (g *group) hand(pgrp int) {
	_ = unix.IoctlSetPointerInt(g.tty, unix.TIOCSPGRP, pgrp) // a terminal that is gone is nobody's
}

func (g *group) close() {
	if g.tty >= 0 {
		_ = unix.Close(g.tty)
	}
}
