//go:build unix

package tui

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// patience bounds every wait: far more than anything here takes, for a machine that does other things.
const patience = 30 * time.Second

// seat is a process with a screen of its own, on a terminal of its own.
type seat struct {
	t             *testing.T
	root, crashes string
	store         *lease.Store
	cmd           *exec.Cmd
	master, slave *os.File
	before        *term.State
	stderr        bytes.Buffer

	mu     sync.Mutex
	output bytes.Buffer
	over   chan struct{} // closed when the process has ended
}

// take starts the process and waits for its first picture.
func take(t *testing.T, role string) *seat {
	t.Helper()
	return takeAs(t, role, os.Args[0])
}

func takeAs(t *testing.T, role string, command ...string) *seat {
	t.Helper()
	s := &seat{t: t, crashes: t.TempDir(), over: make(chan struct{})}
	var w *watch.Watcher
	w, s.store = watcherOf(t, "agent")
	s.root = w.Roots[0].Path
	var err error
	if s.master, s.slave, err = pty.Open(); err != nil {
		needs(t, err)
	}
	t.Cleanup(func() {
		_ = s.master.Close()
		_ = s.slave.Close()
	})
	if err := pty.Setsize(s.master, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	if s.before, err = term.GetState(int(s.slave.Fd())); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command(command[0], command[1:]...)
	// CI keeps the init of Bubble Tea from asking this terminal, which never answers, for its colours.
	s.cmd.Env = append(os.Environ(), "CI=1", "TERM=xterm-256color", roleVariable+"="+role, rootVariable+"="+s.root, crashVariable+"="+s.crashes)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, &s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	go s.read()
	go func() {
		_ = s.cmd.Wait() // its state says the same
		close(s.over)
	}()
	s.waitFor("1 entry")
	return s
}

// needs skips what this machine cannot do; where a skip counts as a failure, it fails.
func needs(t *testing.T, missing error) {
	t.Helper()
	if os.Getenv("HOLDFAST_STRICT") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// leave presses q until the process ends.
func (s *seat) leave() {
	s.t.Helper()
	s.pressUntil("q", func() bool {
		select {
		case <-s.over:
			return true
		default:
			return false
		}
	})
}

// pressUntil presses a key again and again: two that arrive at once are no key.
func (s *seat) pressUntil(key string, done func() bool) {
	s.t.Helper()
	for begun := time.Now(); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > patience {
			s.t.Fatalf("%s is not heard; the terminal got %q", key, s.written())
		}
		_, _ = s.master.WriteString(key)
	}
}

func (s *seat) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.master.Read(buf)
		s.mu.Lock()
		s.output.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *seat) written() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

func (s *seat) waitFor(part string) {
	s.t.Helper()
	for begun := time.Now(); !strings.Contains(s.written(), part); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			s.t.Fatalf("the screen never said %q; its terminal got %q, stderr %q", part, s.written(), s.stderr.String())
		}
	}
}

func (s *seat) press(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// hold makes the screen claim its lease.
func (s *seat) hold() {
	s.t.Helper()
	s.press("C")
	s.waitFor("claim and hold")
	time.Sleep(dialogDeaf) // keys are not heard before; after it they are
	s.press("y")
	s.waitFor("Claimed agent with epoch 7")
}

// ended waits for the process and checks that its exit code is one of those, and that the terminal is as it was.
func (s *seat) ended(codes ...int) {
	s.t.Helper()
	select {
	case <-s.over:
	case <-time.After(patience):
		s.t.Fatalf("the process does not end; its terminal got %q", s.written())
	}
	if got := s.cmd.ProcessState.ExitCode(); !slices.Contains(codes, got) {
		s.t.Errorf("exit code %d, want %v; stderr %q", got, codes, s.stderr.String())
	}
	s.restored()
}

// restored checks that the terminal is as it was before the screen.
func (s *seat) restored() {
	s.t.Helper()
	if after, err := term.GetState(int(s.slave.Fd())); err != nil || !reflect.DeepEqual(after, s.before) {
		s.t.Errorf("the terminal's modes are not restored (%v):\n%+v\n%+v", err, s.before, after)
	}
	// What the process wrote last may still be on its way through the terminal.
	var problem string
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		if problem = leftOn(s.written()); problem == "" {
			return
		}
	}
	s.t.Errorf("%s is still on; the terminal got %q", problem, s.written())
}

// leftOn names a mode that a terminal that got all this is still in.
func leftOn(output string) string {
	for name, mode := range map[string]string{"the alternate screen": "1049", "bracketed paste": "2004", "mouse reporting": "1002"} {
		if strings.LastIndex(output, "\x1b[?"+mode+"h") > strings.LastIndex(output, "\x1b[?"+mode+"l") {
			return name
		}
	}
	if strings.LastIndex(output, "\x1b[?25l") > strings.LastIndex(output, "\x1b[?25h") {
		return "the hidden cursor"
	}
	return ""
}

func (s *seat) isFree() {
	s.t.Helper()
	if info, err := s.store.Inspect("agent"); err != nil || info.Verdict.State != verdict.Free || info.Epoch != 7 {
		s.t.Errorf("the lease is %v with epoch %d, %v", info.Verdict.State, info.Epoch, err)
	}
}

func TestTerminalQuit(t *testing.T) {
	s := take(t, "well")
	s.press("q")
	s.ended(0)
	if s.stderr.Len() > 0 {
		t.Errorf("stderr: %q", s.stderr.String())
	}
}

func TestTerminalQuitWithAHold(t *testing.T) {
	s := take(t, "well")
	s.hold()
	s.press("q")
	s.waitFor("You hold 1 lease.")
	time.Sleep(dialogDeaf)
	s.press("\r")
	s.ended(0)
	s.isFree()
}

// forget drops what the terminal got till now, so that what comes next can be waited for.
func (s *seat) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.output.Reset()
}

func TestTerminalBreakAndAcquire(t *testing.T) {
	s := take(t, "well")
	dir := filepath.Join(s.root, "index", "8eb3d10c88aa02f1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	k := &stock{t: t, lock: filepath.Join(dir, "cache.lock"), s: &Screen{Audit: &audit.Log{Path: filepath.Join(s.crashes, "audit.jsonl")}}}
	// act makes the dead lock the first row, opens the plan for it and confirms it.
	act := func(key, plan, told string) {
		s.forget()
		k.putDead()
		s.waitFor("DEAD")
		s.press("g")
		time.Sleep(100 * time.Millisecond) // two keys that arrive at once are none
		s.press(key)
		s.waitFor(plan)
		time.Sleep(dialogDeaf) // keys are not heard before; after it they are
		s.press("y")
		s.waitFor(told)
	}
	act("B", "y break it", "Broke index/")
	if exists(k.lock) || k.logged(k.lock).Nonce != "writer-dead" {
		t.Error("it is not broken, or not told in the log")
	}
	act("A", "y acquire and hold", "Acquired index/")
	if info := (&fslock.Locker{}).Inspect(k.lock); info.Verdict.State != verdict.Live {
		t.Errorf("the lock is %v", info.Verdict.State)
	}
	s.signal(syscall.SIGTERM)
	s.ended(143)
	if exists(k.lock) || !strings.Contains(s.stderr.String(), "released lock index/8eb3d10c88aa02f1/cache.lock") {
		t.Errorf("stderr: %q", s.stderr.String())
	}
}

func TestTerminalSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := take(t, "well")
			s.hold()
			s.signal(sig)
			s.ended(128 + int(sig))
			s.isFree()
			if !strings.Contains(s.stderr.String(), "released lease agent") {
				t.Errorf("stderr: %q", s.stderr.String())
			}
		})
	}
}

var reportName = regexp.MustCompile(`the report is (\S+)`)

func TestTerminalPanics(t *testing.T) {
	for _, where := range []string{"update", "view", "job", "watcher"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := take(t, where)
			s.hold()
			if where == "watcher" {
				if err := os.WriteFile(filepath.Join(s.root, "panic"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				s.press("x")
			}
			s.ended(exitInternal)
			s.isFree()
			name := reportName.FindStringSubmatch(s.stderr.String())
			if name == nil {
				t.Fatalf("stderr names no report: %q", s.stderr.String())
			}
			report, err := os.ReadFile(strings.TrimSuffix(name[1], ";"))
			if err != nil || !strings.Contains(string(report), "holdfast/tui") {
				t.Errorf("the report: %v, %q", err, report)
			}
		})
	}
}

// An Update that does not return hears nothing: the first signal still restores and ends.
func TestTerminalSignalWhileUpdateIsBlocked(t *testing.T) {
	s := take(t, "block")
	s.press("x")
	s.signal(syscall.SIGTERM)
	s.ended(143)
}

func TestTerminalSecondSignal(t *testing.T) {
	s := take(t, "block")
	s.press("x")
	s.signal(syscall.SIGINT) // which of two is heard first is the system's business
	s.signal(syscall.SIGTERM)
	s.ended(130, 143)
}

func TestTerminalThatVanishes(t *testing.T) {
	s := take(t, "well")
	s.hold()
	if err := s.master.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.over:
	case <-time.After(patience):
		t.Fatal("the process lives on without a terminal")
	}
	if got := s.cmd.ProcessState.ExitCode(); got != 129 {
		t.Errorf("exit code %d; stderr %q", got, s.stderr.String())
	}
	s.isFree()
}

// The process leads a session, so no shell could make it go on: ^z must neither stop it nor make it hang.
func TestTerminalSuspendWithoutAShell(t *testing.T) {
	s := take(t, "well")
	s.press("\x1a")
	s.waitFor("there is no shell")
	s.press("q")
	s.ended(0)
}

func TestTerminalSuspend(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		needs(t, err)
	}
	s := takeAs(t, "well", shell, "-c", `set -m; "$0"; echo stopped=$?; read line; fg >/dev/null; echo ended=$?`, os.Args[0])
	s.press("\x1a")
	s.waitFor("stopped=")
	s.restored()
	s.forget()
	s.press("\n")
	s.waitFor("1 entry")
	s.leave()
	s.waitFor("ended=0")
	s.ended(0)
}

// A request to stop that comes from elsewhere is heard, too: unheard it would leave the terminal raw.
func TestTerminalStopFromElsewhere(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		needs(t, err)
	}
	s := takeAs(t, "well", shell, "-c", `set -m; "$0"; echo stopped=$?; read line; fg >/dev/null; echo ended=$?`, os.Args[0])
	stop := func() {
		t.Helper()
		// Only a terminal's own processes may ask it by the other end.
		group, err := unix.IoctlGetInt(int(s.master.Fd()), unix.TIOCGPGRP)
		if err != nil {
			needs(t, err)
		}
		if err := syscall.Kill(-group, syscall.SIGTSTP); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	s.waitFor("stopped=")
	s.restored()
	s.forget()
	s.press("\n")
	s.waitFor("1 entry")
	s.hold()
	s.forget()
	stop()
	s.waitFor("Not suspended")
	s.forget()
	s.press("q")
	s.waitFor("You hold 1 lease")
	time.Sleep(dialogDeaf) // it does not listen before
	s.press("\r")
	s.waitFor("ended=0")
	s.ended(0)
	s.isFree()
}

func TestTerminalStormOfWheelAndPaste(t *testing.T) {
	s := take(t, "well")
	for i := range 200 {
		report := "\x1b[<64;20;10M"
		s.press(report[:i%len(report)])
		time.Sleep(time.Millisecond)
		s.press(report[i%len(report):])
	}
	s.press("\x1b[200~CRyq\rC y q\x1b[201~")
	s.press("j")
	s.pressUntil("?", func() bool { return strings.Contains(s.written(), "previous problem") })
	if info, _ := s.store.Inspect("agent"); info.Epoch != 6 {
		t.Errorf("something was claimed: epoch %d", info.Epoch)
	}
	s.leave()
	s.ended(0)
}
