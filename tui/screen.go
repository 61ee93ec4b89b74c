// Package tui is the screen: who holds what, whether that is stuck, why, and when it clears.
//
// One root model holds the whole state. It is changed in one place (update), by messages that say what they
// answer, and drawn by pure functions of that state; looking at processes and changing files run as jobs
// beside it. Everything that is particular to Bubble Tea stands in harness.go.
package tui

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/lease"
	"holdfast/watch"
)

// Screen is the screen on a terminal. Its fields are not changed after Run was called.
type Screen struct {
	// Watch calls emit for every snapshot until ctx ends; emit never waits. Required.
	Watch func(ctx context.Context, emit func(*watch.Snapshot)) error
	// Looked is how many entries were looked at till now, which is shown until the first snapshot: Watcher.Looked of package
	// watch. It waits for nothing. nil: no number is shown.
	Looked func() int
	// Stores returns the store of a directory of leases, that of an entry's path: Watcher.Store of package watch, so
	// that what was seen of a lease counts when it is claimed. It looks at no file. nil: nothing can be claimed.
	Stores func(dir string) *lease.Store

	// History returns what was seen of an entry since Watch began: Watcher.History of package watch. It waits for nothing.
	// nil: none is kept.
	History func(kind watch.Kind, path string) watch.History

	// Locker acquires locks and breaks locks and tokens: Watcher.Locker of package watch, for the same reason. It is
	// itself read-only where ReadOnly is set. nil: no lock can be changed, and nothing swept.
	Locker *fslock.Locker
	// Audit is where what is broken or swept is told first; nil: the user's own log.
	Audit *audit.Log

	// Rescan has everything looked at again at once and returns when that is done: Watcher.Rescan of package watch. nil: ^r
	// does nothing.
	Rescan func(ctx context.Context) error
	// Exports are the forms in which ^s writes the picture, into holdfast in the user's state directory, also when ReadOnly:
	// it changes no lock. None: ^s does nothing.
	Exports []Export

	ReadOnly bool           // nothing is ever changed; the screen says RO
	Claimant lease.Claimant // who claims, for leases that the screen takes

	ASCII   bool   // draw with ASCII only
	Theme   string // a name that ThemeOf knows; any other is the first
	NoColor bool   // no colours and no other attributes; the words, symbols and the cursor's mark remain
	Demo    string // a line that is always shown, as where the playground lies; "": none
	// Multiplexer is what the terminal is shown in, which what is copied has to get through: "tmux", "screen", or "" for
	// none, and for one on the other side of an ssh.
	Multiplexer string

	Home string // what "~" stands for in the header; "": nothing is shortened

	// Alone says that the process does nothing beside the screen: from the first snapshot until Run returns it makes do with
	// one processor, and collects garbage sooner.
	Alone bool

	In  io.Reader // a terminal, or for tests anything; nil: no keys
	Out io.Writer // a terminal, or for tests anything of 80 x 24. Required.

	tests seams
}

// seams are where tests stand in for what a bubble of fake time, or a test that crashes on purpose, cannot have.
type seams struct {
	signals  chan os.Signal                                           // nil: this process's signals
	stops    chan os.Signal                                           // beside signals: requests to stop
	library                                                           // what is nil is the real call
	describe func(ctx context.Context, pid int) (proc.Details, error) // nil: package proc is asked
	crashDir string                                                   // "": holdfast in the user's state directory
	exports  string                                                   // directory; "": holdfast in the user's state directory
	onKey    func(*harness, string)                                   // called in Update with the name of every key; nil: not
}

// Themes are the names of the colour themes: the terminal's own colours, colours that people who confuse red
// with green can tell apart, and none but bold and dim.
func Themes() []string { return []string{"default", colourBlind, "mono"} }

const colourBlind = "colour-blind"

// ThemeOf returns the name in Themes that is meant by a name: colour-blind may be written without its hyphen, and as
// Americans write it. ok is false for what names no theme.
func ThemeOf(name string) (theme string, ok bool) {
	switch name {
	case "color-blind", "colourblind", "colorblind":
		name = colourBlind
	}
	return name, slices.Contains(Themes(), name)
}

// ExitError says that the screen ended otherwise than by its user's wish, and how the process should exit.
type ExitError struct {
	Code  int      // what the process should exit with: 70 after a crash, 128+n after signal n, 1 for anything else
	Crash string   // the report of a crash; "" when there is none
	Notes []string // what became of what the screen held; one sentence each
	Err   error
}

func (e *ExitError) Error() string {
	return strings.Join(append([]string{e.Err.Error()}, e.Notes...), "; ")
}

func (e *ExitError) Unwrap() error { return e.Err }

// The exit codes that are no 128+n.
const (
	exitFailed   = 1
	exitInternal = 70
)

func signalCode(sig os.Signal) int {
	if n, ok := sig.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitFailed
}

// Run shows the screen until its user quits, a signal ends it, or ctx ends. The terminal is then as it was,
// and every lease and lock that the screen held is released or told in the error. It returns nil when the user quit, an
// *ExitError after a signal (INT, TERM, HUP or QUIT; a second one returns without waiting), a crash, or a
// failed release, and ctx's error when that ended it. It does not exit the process, and may return before
// its goroutines did when the terminal or a file system does not answer.
func (s *Screen) Run(ctx context.Context) error {
	if s.Watch == nil || s.Out == nil {
		return &ExitError{Code: exitInternal, Err: fmt.Errorf("screen: Watch and Out are required")}
	}
	return newHarness(s).run(ctx)
}
