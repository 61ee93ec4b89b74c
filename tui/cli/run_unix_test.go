//go:build unix

package cli_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"holdfast/fslock/record"
)

// playUnix are the workers that signals and terminals are for.
func playUnix(role string, args []string) {
	signals := make(chan os.Signal, 16)
	heard := []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
		syscall.SIGCONT,
	}
	switch role {
	case "signals", "stubborn": // says each signal; ends by TERM, but a stubborn one does not
		signal.Notify(signals, heard...)
		goneWithTheTest()
		fmt.Println("ready", os.Getpid())
		for sig := range signals {
			fmt.Println("got", sig)
			if sig == syscall.SIGTERM && role == "signals" {
				os.Exit(9)
			}
		}
	case "parent": // starts another worker, and ends at once, or with "waits" at TERM
		signal.Notify(signals, syscall.SIGTERM)
		other := exec.Command("worker", args[0])
		other.Stdin, other.Stdout, other.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := other.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if len(args) > 1 {
			<-signals
		}
	case "unheeding": // becomes holdfast, with HUP ignored as by nohup
		signal.Ignore(syscall.SIGHUP)
		path, err := exec.LookPath("holdfast")
		if err == nil {
			err = syscall.Exec(path, append([]string{"holdfast"}, args...), os.Environ())
		}
		fmt.Println(err)
	case "ignores":
		fmt.Println("HUP ignored:", signal.Ignored(syscall.SIGHUP))
	case "reader": // reads a line from its terminal, then waits for INT
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT)
		go func() {
			for sig := range signals {
				fmt.Println("got", sig)
				if sig != syscall.SIGCONT {
					os.Exit(3)
				}
			}
		}()
		fmt.Println("reading")
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("read %q, %v\n", line, err)
		select {}
	case "shell":
		shell(args)
	case "sleeper": // says so, and dies by whatever comes
		fmt.Println("ready")
		time.Sleep(2 * patience)
	case "slow": // takes its time to end by TERM
		signal.Notify(signals, syscall.SIGTERM)
		goneWithTheTest()
		fmt.Println("ready")
		<-signals
		time.Sleep(400 * time.Millisecond)
	case "raw": // makes its terminal raw, does not heed TERM, and tells after a CONT whether it is raw still
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGCONT)
		_, err := term.MakeRaw(0)
		raw, _ := term.GetState(0)
		fmt.Println("raw", os.Getpid(), err)
		for sig := range signals {
			if now, err := term.GetState(0); sig == syscall.SIGCONT && err == nil {
				fmt.Println("raw again:", *now == *raw)
			}
		}
	case "substitution": // what a shell does for $(...): the job is in its own group, its output caught, and may not stop
		signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP)
		job := exec.Command(args[0], args[1:]...)
		job.Stdin, job.Stderr = os.Stdin, os.Stderr
		out, err := job.Output()
		fmt.Printf("substituted %q, %v\n", out, err)
	case "asker": // asks its terminal, wherever its output goes
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err == nil {
			fmt.Fprintln(tty, "asking")
			var line string
			line, err = bufio.NewReader(tty).ReadString('\n')
			fmt.Print("answer ", line)
		}
		fmt.Println(err)
	}
}

// goneWithTheTest ends a worker when its standard input does.
func goneWithTheTest() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(99)
	}()
}

// shell runs a command as an interactive shell does: its job in the foreground until it is stopped, and again after a
// line, and says what it sees. With "pipe" the job writes into one.
func shell(args []string) {
	in := bufio.NewReader(os.Stdin)
	own := syscall.Getpgrp()
	job := exec.Command(args[1], args[2:]...)
	job.Stdin, job.Stdout, job.Stderr = os.Stdin, os.Stdout, os.Stderr
	if args[0] == "pipe" {
		r, w, err := os.Pipe()
		if err != nil {
			fmt.Println(err)
			return
		}
		job.Stdout = w
		go func() { _, _ = io.Copy(os.Stdout, r) }()
	}
	job.SysProcAttr = &syscall.SysProcAttr{Foreground: true}
	if err := job.Start(); err != nil {
		fmt.Println(err)
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	pid := job.Process.Pid
	terminal := func(pgrp int) (before bool) {
		now, _ := unix.IoctlGetInt(0, unix.TIOCGPGRP)
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, pgrp)
		return now == pid
	}
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			fmt.Println(err)
			return
		}
		if !status.Stopped() {
			how := strconv.Itoa(status.ExitStatus())
			if status.Signaled() {
				how = "by " + status.Signal().String()
			}
			fmt.Printf("ended %s, terminal given back: %v\n", how, terminal(own))
			line, err := in.ReadString('\n')
			fmt.Printf("shell read %q, %v\n", line, err)
			return
		}
		fmt.Printf("stopped, terminal given back: %v\n", terminal(own))
		_, _ = in.ReadString('\n')
		fmt.Println("going on")
		terminal(pid)
		_ = syscall.Kill(-pid, syscall.SIGCONT)
	}
}

// screen is a terminal that a command has, and what it wrote there.
type screen struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	more   chan struct{}

	mu   sync.Mutex
	text string // that no test has looked at
	over bool
}

func onTerminal(t *testing.T, args ...string) *screen {
	t.Helper()
	s := &screen{t: t, cmd: exec.Command(args[0], args[1:]...), more: make(chan struct{}, 1)}
	// CI keeps the init of Bubble Tea from asking this terminal, which never answers, for its colours.
	s.cmd.Env = append(os.Environ(), "CI=1")
	var err error
	if s.master, err = pty.Start(s.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.master.Close() // all of them get HUP
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	go func() {
		buf := make([]byte, 4096)
		for err := error(nil); err == nil; {
			var n int
			n, err = s.master.Read(buf)
			s.mu.Lock()
			s.text += string(buf[:n])
			s.over = err != nil
			s.mu.Unlock()
			select {
			case s.more <- struct{}{}:
			default:
			}
		}
	}()
	return s
}

// sees waits for the text, forgets what comes before its end, and returns what came before it.
func (s *screen) sees(want string) string {
	s.t.Helper()
	bound := time.After(patience)
	for {
		s.mu.Lock()
		text, over := s.text, s.over
		before, after, found := strings.Cut(text, want)
		if found {
			s.text = after
		}
		s.mu.Unlock()
		if found {
			return before
		}
		if over {
			s.t.Fatalf("%q is not to be seen at the end, but %q", want, text)
		}
		select {
		case <-s.more:
		case <-bound:
			s.t.Fatalf("%q is not to be seen, but %q", want, text)
		}
	}
}

func (s *screen) types(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// The command has the terminal: it reads there, ^C is for it, and afterwards the terminal is the shell's.
func TestCommandHasTheTerminal(t *testing.T) {
	for _, stdout := range []string{"terminal", "pipe"} { // with a pipe, it is given it when it reads there
		t.Run(stdout, func(t *testing.T) {
			t.Parallel()
			root, file := leases(t)
			s := onTerminal(t, "worker", "shell", stdout, "holdfast", "run", "--root", root, "--lease", "x", "--", "worker", "reader")
			s.sees("reading")
			s.types("hello\n")
			s.sees(`read "hello\n", <nil>`)
			s.types("\x03")
			if stdout == "terminal" { // what goes through a pipe may come later than what does not
				s.sees("got interrupt")
			}
			s.sees("ended 3, terminal given back: true")
			s.types("after\n")
			s.sees(`shell read "after\n", <nil>`)
			gone(t, file)
		})
	}
}

// ^Z stops the command and run; what that means for the hold is said. fg lets both go on.
func TestStoppedCommandGoesOn(t *testing.T) {
	t.Parallel()
	root, _ := leases(t)
	s := onTerminal(t, "worker", "shell", "terminal", "holdfast", "run", "--root", root, "--lease", "x", "--", "worker", "reader")
	s.sees("reading")
	for range 2 {
		s.types("\x1a")
		s.sees("the lease x is still held")
		s.sees("stopped, terminal given back: true")
		s.types("fg\n")
		s.sees("got continued")
	}
	s.types("hello\n")
	s.sees(`read "hello\n", <nil>`)
	s.types("\x03")
	s.sees("got interrupt")
	s.sees("ended 3, terminal given back: true")
}

func TestHoldIsLostWhileStopped(t *testing.T) {
	t.Parallel()
	root, file := leases(t)
	s := onTerminal(t, "worker", "shell", "terminal", "holdfast", "run", "--root", root, "--lease", "x", "--", "worker", "signals")
	s.sees("ready")
	s.types("\x1a")
	s.sees("stopped, terminal given back: true")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.types("fg\n")
	s.sees("the lease x is lost")
	s.sees("got terminated")
	s.sees("ended 6, terminal given back: true")
}

// Without a shell that could let them go on, nobody is stopped.
func TestNobodyStopsWithoutAShell(t *testing.T) {
	t.Parallel()
	root, _ := leases(t)
	s := onTerminal(t, "holdfast", "run", "--root", root, "--lease", "x", "--", "worker", "reader")
	s.sees("reading")
	s.types("\x1a")
	s.sees("got continued")
	s.types("hello\n")
	s.sees(`read "hello\n", <nil>`)
	s.types("\x03")
	s.sees("got interrupt")
}

func TestSignalsArePassedOn(t *testing.T) {
	root, file := leases(t)
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "signals")
	c.hears(c.lines, "ready")
	for _, sig := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
		syscall.SIGTERM,
	} {
		if signal.Ignored(sig) {
			continue // as in the background of a script: then the command is to ignore it
		}
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		c.hears(c.lines, "got "+sig.String())
	}
	c.exits(9)
	gone(t, file)
}

func TestEndedBySignal(t *testing.T) {
	root, _ := leases(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		c := run(t, "--root", root, "--lease", "x", "--", "sh", "-c", fmt.Sprintf("kill -%d $$", int(sig)))
		c.exits(128 + int(sig))
	}
	h := claim(t, root)
	waiting := exec.Command("holdfast", "run", "--root", root, "--lease", "x", "-E", "77", "--", "worker", "env")
	waiting.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // with a terminal it would die by the signal
	c := start(t, waiting)
	c.hears(c.complaints, "waiting for lease x")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.exits(130)
	if out := c.rest(c.lines); out != "" {
		t.Errorf("it ran: %s", out)
	}
	_ = h.Process.Kill()
}

func TestIgnoredSignalIsIgnoredByTheCommandToo(t *testing.T) {
	root, _ := leases(t)
	c := start(t, exec.Command("worker", "unheeding", "run", "--root", root, "--lease", "x", "--", "worker", "ignores"))
	c.hears(c.lines, "HUP ignored: true")
	c.exits(0)
}

func TestKilledRunKillsItsCommand(t *testing.T) {
	root, _ := leases(t)
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "stubborn")
	c.hears(c.lines, "ready")
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.exits(-1)
	c.rest(c.lines) // the command has no end of the pipe any more
}

func TestHoldIsLost(t *testing.T) {
	remove := func(t *testing.T, file string) {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, hold string
		lose       func(t *testing.T, file string)
		worker     []string
		says       string
		obeys      bool
	}{
		{"lock removed, command ends by TERM", "lock", remove, []string{"signals"}, "lock is lost: Its file is gone", true},
		{"lease taken over, command ignores TERM", "lease", takenOver, []string{"stubborn"}, "it is now that of ", false},
		{"lease removed, grandchild ignores TERM", "lease", remove, []string{"parent", "stubborn", "waits"}, "nobody holds it", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, file := leases(t)
			args := []string{"--root", root, "--lease", "x"}
			if c.hold == "lock" {
				file = filepath.Join(root, "x.lock")
				args = []string{"--lock", file}
			}
			r := run(t, append(append(args, "--", "worker"), c.worker...)...)
			r.hears(r.lines, "ready")
			c.lose(t, file)
			r.hears(r.complaints, "is lost: ending the command")
			told := time.Now()
			r.hears(r.lines, "got terminated")
			r.exits(6)
			if after := time.Since(told); (after < 2500*time.Millisecond) != c.obeys {
				t.Errorf("it ended %v after the loss", after)
			}
			r.rest(r.lines) // nobody of the group is left to write there
			if complaints := r.rest(r.complaints); !strings.Contains(complaints, c.says) || strings.Contains(complaints, "level=") {
				t.Errorf("it says %q", complaints)
			}
		})
	}
}

// takenOver makes the lease that of another claim.
func takenOver(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l, err := record.DecodeLease(file, data)
	if err != nil {
		t.Fatal(err)
	}
	l.ClaimID, l.OwnerBootID, l.BlockID = "another", "owner", "block"
	l.Epoch++
	if err := os.WriteFile(file+".new", l.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// Nobody has looked since it was lost: the command's success is none.
func TestLossIsFoundAtTheEnd(t *testing.T) {
	root, file := leases(t)
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "cat")
	if _, err := io.WriteString(c.in, "here\n"); err != nil {
		t.Fatal(err)
	}
	c.hears(c.lines, "here")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_ = c.in.Close()
	c.exits(6)
}

// What still ends when the command has ended is nothing that it has left, nor is what has ended and nobody has asked for.
func TestWhatEndsByASignalMayTakeItsTime(t *testing.T) {
	askNobody(t)
	root, _ := leases(t)
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "parent", "slow", "waits")
	c.hears(c.lines, "ready")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.exits(0)
	if complaints := c.rest(c.complaints); complaints != "" {
		t.Errorf("it says %q", complaints)
	}
}

func TestStoppedCommandHearsASignal(t *testing.T) {
	root, file := leases(t)
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "signals")
	pid := pidIn(t, c.hears(c.lines, "ready"))
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			continue
		}
		if err := errors.Join(syscall.Kill(pid, syscall.SIGSTOP), c.Process.Signal(sig)); err != nil {
			t.Fatal(err)
		}
		c.hears(c.lines, "got "+sig.String())
	}
	c.exits(9)
	gone(t, file)
}

// pidIn is the number at the end of a worker's first line.
func pidIn(t *testing.T, line string) int {
	t.Helper()
	fields := strings.Fields(line)
	pid, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		t.Fatalf("no pid in %q", line)
	}
	return pid
}

// A release that fails is told once, in words.
func TestFailedReleaseIsToldOnce(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "x.lock")
	c := run(t, "--lock", lock, "--", "sh", "-c", `echo "{ no record" >"$0.new" && mv "$0.new" "$0"`, lock)
	c.exits(0)
	if complaints := c.rest(c.complaints); !strings.Contains(complaints, "it was not released") || strings.Contains(complaints, "\n") {
		t.Errorf("it says %q", complaints)
	}
}

func TestWhatTheCommandLeavesIsTold(t *testing.T) {
	root, file := leases(t)
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "parent", "signals")
	line := c.hears(c.complaints, "what it started still runs")
	c.exits(0)
	gone(t, file)
	_, pgrp, _ := strings.Cut(line, "process group ")
	pgrp, _, _ = strings.Cut(pgrp, ")")
	if n, err := strconv.Atoi(pgrp); err != nil || syscall.Kill(-n, 0) != nil {
		t.Errorf("there is no such group: %s", line)
	}
}
