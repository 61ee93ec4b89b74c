//go:build unix

package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/term"
)

// modes are how the terminal treats what is typed.
func (s *screen) modes() term.State {
	s.t.Helper()
	state, err := term.GetState(int(s.master.Fd()))
	if err != nil {
		s.t.Fatal(err)
	}
	return *state
}

// runOnTerminal runs a command under a lock as the job of a shell.
func runOnTerminal(t *testing.T, stdout string, command ...string) (s *screen, lock string) {
	t.Helper()
	lock = filepath.Join(t.TempDir(), "x.lock")
	return onTerminal(t, append([]string{"worker", "shell", stdout, "holdfast", "run", "--lock", lock, "--"}, command...)...), lock
}

// A command that we kill cannot put the terminal's modes back.
func TestKilledCommandLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	s, lock := runOnTerminal(t, "terminal", "worker", "raw")
	s.sees("raw ")
	s.sees("<nil>")
	raw := s.modes()
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	s.sees("ended 6, terminal given back: true")
	if s.modes() == raw {
		t.Error("the terminal is raw")
	}
	s.types("after\n")
	s.sees(`shell read "after\n", <nil>`)
}

func TestModesOfTheTerminalAfterTheCommand(t *testing.T) {
	for _, c := range []struct {
		name, script, ends string
		same               bool
	}{
		{"died by a signal", "stty -icanon -echo; echo here; read x; kill -9 $$", "ended 137", true},
		{"ended", "stty -echo; echo here; read x", "ended 0", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := runOnTerminal(t, "terminal", "sh", "-c", "echo begun; read x; "+c.script)
			s.sees("begun")
			before := s.modes()
			s.types("\n")
			s.sees("here")
			if s.modes() == before {
				t.Fatal("the command has changed nothing")
			}
			s.types("\n")
			s.sees(c.ends)
			if same := s.modes() == before; same != c.same {
				t.Errorf("the modes are as before: %v", same)
			}
		})
	}
}

// While it is stopped the terminal is as it was; when it goes on, as the command has made it.
func TestModesOfTheTerminalAreTheStoppedCommandsOwn(t *testing.T) {
	t.Parallel()
	s, _ := runOnTerminal(t, "terminal", "sh", "-c", "echo here; read x; exec worker raw")
	s.sees("here")
	before := s.modes()
	s.types("\n")
	s.sees("raw ")
	pid, err := strconv.Atoi(s.sees(" <nil>"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if s.modes() == before {
			t.Fatal("the terminal is not raw")
		}
		if err := syscall.Kill(-pid, syscall.SIGTSTP); err != nil { // raw, its terminal sends none
			t.Fatal(err)
		}
		s.sees("stopped, terminal given back: true")
		if s.modes() != before {
			t.Error("the terminal is not as it was while the command is stopped")
		}
		s.types("fg\n")
		s.sees("raw again: true")
	}
}

// ^C ends a loop of a shell around run only if that sees run die by it, whoever has the terminal and whether the
// command has begun.
func TestInterruptedRunDiesByIt(t *testing.T) {
	for _, stdout := range []string{"terminal", "pipe"} {
		t.Run(stdout, func(t *testing.T) {
			t.Parallel()
			s, lock := runOnTerminal(t, stdout, "worker", "sleeper")
			s.sees("ready")
			s.types("\x03")
			s.sees("ended by interrupt, terminal given back: true")
			gone(t, lock)
		})
	}
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		root, _ := leases(t)
		claim(t, root)
		s := onTerminal(t, "worker", "shell", "terminal", "holdfast", "run", "--root", root, "--lease", "x", "--", "worker", "sleeper")
		s.sees("waiting for lease x")
		s.types("\x03")
		s.sees("ended by interrupt, terminal given back: true")
	})
}

// A shell's $(...) ignores what a command without the terminal asks for it with.
func TestCommandAsksTheTerminalWithinASubstitution(t *testing.T) {
	t.Parallel()
	root, file := leases(t)
	s := onTerminal(t, "worker", "substitution", "holdfast", "run", "--root", root, "--lease", "x", "--", "worker", "asker")
	s.sees("asking")
	s.types("hello\n")
	s.sees(`substituted "answer hello\n<nil>\n", <nil>`)
	gone(t, file)
}
