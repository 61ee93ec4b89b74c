package cli_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait: far more than anything here takes, for a machine that does other things.
const patience = 30 * time.Second

// worker is the program that is run under locks and leases here. Its first argument is what it does.
func worker() {
	role, args := os.Args[1], os.Args[2:]
	switch role {
	case "env":
		for _, v := range slices.Sorted(slices.Values(os.Environ())) {
			if strings.HasPrefix(v, "HOLDFAST_") && !strings.HasPrefix(v, "HOLDFAST_STRICT=") {
				fmt.Println(v)
			}
		}
	case "exit":
		code, _ := strconv.Atoi(args[0])
		os.Exit(code)
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
		fmt.Fprintln(os.Stderr, "to standard error")
	default:
		playUnix(role, args)
	}
}

// command is a `holdfast run` whose output is read line by line.
type command struct {
	*exec.Cmd
	t          *testing.T
	in         io.WriteCloser // what the worker waits for the end of
	complaints chan string    // lines of standard error
	lines      chan string    // of standard output; closed at its end
}

// run starts `holdfast run` with args.
func run(t *testing.T, args ...string) *command {
	t.Helper()
	return start(t, exec.Command("holdfast", append([]string{"run"}, args...)...))
}

func start(t *testing.T, cmd *exec.Cmd) *command {
	t.Helper()
	c := &command{Cmd: cmd, t: t}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.lines, c.complaints = lines(t, cmd.StdoutPipe), lines(t, cmd.StderrPipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.in.Close() // the workers end
		_ = cmd.Process.Kill()
	})
	return c
}

// lines are the lines that come through a pipe.
func lines(t *testing.T, pipe func() (io.ReadCloser, error)) chan string {
	t.Helper()
	r, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 100)
	go func() {
		defer close(all)
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			all <- scanner.Text()
		}
	}()
	return all
}

// hears waits for a line with want in it.
func (c *command) hears(from chan string, want string) string {
	c.t.Helper()
	bound := time.After(patience)
	var other []string
	for {
		select {
		case line, more := <-from:
			if strings.Contains(line, want) && more {
				return line
			}
			if other = append(other, line); !more {
				c.t.Fatalf("it never says %q, but %q", want, other)
			}
		case <-bound:
			c.t.Fatalf("it does not say %q, but %q", want, other)
		}
	}
}

// exits waits for the end of run itself, and wants that code.
func (c *command) exits(want int) {
	c.t.Helper()
	ended := make(chan int, 1)
	go func() {
		state, err := c.Process.Wait() // the pipes are left to their readers
		if err != nil {
			ended <- -2
			return
		}
		ended <- state.ExitCode()
	}()
	select {
	case code := <-ended:
		if code != want {
			c.t.Errorf("exit code %d, want %d: %s", code, want, c.rest(c.complaints))
		}
	case <-time.After(patience):
		c.t.Fatal("it does not end")
	}
}

// rest is all that is still to come, until nobody has the pipe open any more.
func (c *command) rest(from chan string) string {
	c.t.Helper()
	bound := time.After(patience)
	var all []string
	for {
		select {
		case line, more := <-from:
			if !more {
				return strings.Join(all, "\n")
			}
			all = append(all, line)
		case <-bound:
			c.t.Fatalf("somebody still writes, after %q", all)
		}
	}
}

// gone checks that a file is not there.
func gone(t *testing.T, file string) {
	t.Helper()
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", file, err)
	}
}

func TestCommandFindsItsHoldInItsEnvironment(t *testing.T) {
	t.Setenv("HOLDFAST_ID", "of a run around this one")
	root, file := leases(t)
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "env")
	c.exits(0)
	got := c.rest(c.lines)
	for _, want := range []string{"HOLDFAST_EPOCH=1\n", "HOLDFAST_ID=x\n", "HOLDFAST_NONCE=", "HOLDFAST_PATH=" + file} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	gone(t, file)

	lock := filepath.Join(root, "cache.lock")
	c = run(t, "--lock", lock, "--", "worker", "env")
	c.exits(0)
	got = c.rest(c.lines)
	if !strings.Contains(got, "HOLDFAST_NONCE=") || !strings.HasSuffix(got, "HOLDFAST_PATH="+lock) || strings.Contains(got, "_ID") {
		t.Errorf("under a lock: %q", got)
	}
	gone(t, lock)
}

// What goes through the command is its own: nothing of ours on its standard output.
func TestStreamsAreTheCommands(t *testing.T) {
	root, _ := leases(t)
	c := run(t, "--json", "--root", root, "--lease", "x", "--", "worker", "cat")
	if _, err := io.WriteString(c.in, "a line\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.in.Close()
	c.exits(0)
	if out, complaints := c.rest(c.lines), c.rest(c.complaints); out != "a line" || complaints != "to standard error" {
		t.Errorf("%q, and %q on standard error", out, complaints)
	}
}

func TestExitCodeIsTheCommands(t *testing.T) {
	root, file := leases(t)
	for _, code := range []int{0, 1, 3, 6, 255} {
		c := run(t, "--root", root, "--lease", "x", "-E", "77", "--", "worker", "exit", strconv.Itoa(code))
		c.exits(code)
		if complaints := c.rest(c.complaints); complaints != "" {
			t.Errorf("code %d: %s", code, complaints)
		}
		gone(t, file)
	}
}

func TestCommandThatCannotBeStarted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("other errors")
	}
	root, file := leases(t)
	plain, broken := filepath.Join(root, "plain"), filepath.Join(root, "broken")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]int{"no-such-command": 127, root + "/none": 127, plain: 126, root: 126, plain + "/x": 127, broken: 127} {
		c := run(t, "--root", root, "--lease", "x", "-E", "77", "--", name)
		c.exits(code)
		if complaints := c.rest(c.complaints); !strings.Contains(complaints, "run "+name+": ") {
			t.Errorf("%s: %s", name, complaints)
		}
		gone(t, file)
	}
}

func TestWhatIsNotGot(t *testing.T) {
	root, _ := leases(t)
	h := claim(t, root)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--timeout", "0"}, 3, "held by"},
		{[]string{"--timeout", "0.3"}, 124, "timed out after 300ms"},
		{[]string{"--timeout", "0", "-E", "75"}, 75, "held by"},
		{[]string{"--timeout", "0.3", "-E", "0"}, 0, "timed out"},
		{[]string{"--read-only", "-E", "75"}, 2, "read-only"},
	} {
		run := run(t, append(append([]string{"--root", root, "--lease", "x"}, c.args...), "--", "worker", "cat")...)
		run.exits(c.code)
		if complaints := run.rest(run.complaints); !strings.Contains(complaints, c.says) || strings.Contains(complaints, "standard error") {
			t.Errorf("%v: %s", c.args, complaints)
		}
	}

	// Without --timeout it waits, and says what for, once.
	c := run(t, "--root", root, "--lease", "x", "--", "worker", "env")
	c.hears(c.complaints, "waiting for lease x: ")
	_ = h.Process.Kill()
	c.hears(c.lines, "HOLDFAST_EPOCH=2")
	c.exits(0)
	if complaints := c.rest(c.complaints); strings.Contains(complaints, "waiting") {
		t.Errorf("then it says %s", complaints)
	}
}
