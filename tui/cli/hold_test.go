package cli_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/tui/cli"
)

// The program, as main makes it, stands in the path of all tests here.
func TestMain(m *testing.M) {
	// A program with the race detector in it would wait for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, map[string]func(){"worker": worker, "holdfast": func() {
		os.Exit(cli.Main(context.Background(), os.Args[1:], cli.System()))
	}})
}

// holding is a `holdfast claim --hold` that says that it holds.
type holding struct {
	*exec.Cmd
	lines *bufio.Scanner
}

// claim starts holding the lease x below root, and waits until it does.
func claim(t *testing.T, root string, args ...string) *holding {
	t.Helper()
	h := &holding{Cmd: exec.CommandContext(t.Context(), "holdfast", append([]string{"claim", "x", "--hold", "--root", root}, args...)...)}
	out, err := h.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.Stderr = os.Stderr
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	h.lines = bufio.NewScanner(out)
	if line := h.next(); !strings.HasPrefix(line, "held x: ") {
		t.Fatalf("it says %q", line)
	}
	return h
}

// ended waits for the command and returns its code; -1 when it was killed.
func ended(cmd *exec.Cmd) int {
	_ = cmd.Wait() // it says the same
	return cmd.ProcessState.ExitCode()
}

func (h *holding) next() string {
	h.lines.Scan()
	return h.lines.Text()
}

func leases(t *testing.T) (root, file string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "leases"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root, filepath.Join(root, "leases", "x.lease.json")
}

func TestHoldEndsBySignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	for _, c := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGTERM, 0}, {syscall.SIGINT, 0}, {syscall.SIGHUP, 128 + 1}, {syscall.SIGQUIT, 128 + 3}} {
		t.Run(c.sig.String(), func(t *testing.T) {
			t.Parallel()
			root, file := leases(t)
			h := claim(t, root)
			if _, err := os.Stat(file); err != nil {
				t.Fatal(err)
			}
			if err := h.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			if line := h.next(); line != "released x" {
				t.Errorf("it says %q", line)
			}
			if code := ended(h.Cmd); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("the lease is still there: %v", err)
			}
		})
	}
}

// Somebody is in the lease's critical section: who tries once does not wait for him.
func TestTryingOnceWaitsForNobody(t *testing.T) {
	root, file := leases(t)
	section := flock.New(strings.TrimSuffix(file, ".lease.json") + ".lock")
	if err := section.Lock(); err != nil {
		t.Fatal(err)
	}
	defer section.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // waiting takes 5 s
	defer cancel()
	cmd := exec.CommandContext(ctx, "holdfast", "claim", "x", "--hold", "--timeout", "0", "--root", root)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if code := codeOf(cmd); code != 8 || !strings.Contains(complaint.String(), "is busy") {
		t.Errorf("exit code %d: %s", code, &complaint)
	}
	_ = section.Unlock()
	if code := codeOf(exec.CommandContext(t.Context(), "holdfast", "claim", "x", "--for", "1ms", "--timeout", "0", "--root", root)); code != 0 {
		t.Errorf("exit code %d with nobody there", code)
	}
}

// codeOf runs the command to its end and returns its code.
func codeOf(cmd *exec.Cmd) int {
	_ = cmd.Run() // its code says the same
	return cmd.ProcessState.ExitCode()
}

func TestKilledHoldIsDeadAtOnce(t *testing.T) {
	root, _ := leases(t)
	h := claim(t, root)
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Wait()
	why := exec.CommandContext(t.Context(), "holdfast", "why", "--root", root, "x")
	out, _ := why.Output() // its end is looked at below
	if code := why.ProcessState.ExitCode(); code != 4 || !strings.Contains(string(out), "DEAD") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// Somebody removes the lease under a running holder: it must say so and end, not go on believing.
func TestHoldThatIsLostEnds(t *testing.T) {
	root, file := leases(t)
	h := claim(t, root)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if line := h.next(); line != "lost x" {
		t.Errorf("it says %q", line)
	}
	if code := ended(h.Cmd); code != 6 {
		t.Errorf("exit code %d, want 6", code)
	}
}

// Nobody has looked since it was lost: its holder's end is no clean one.
func TestLossOfALeaseIsFoundByTheHoldersEnd(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	root, file := leases(t)
	h := claim(t, root)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := h.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line := h.next(); line != "lost x" {
		t.Errorf("it says %q", line)
	}
	if code := ended(h.Cmd); code != 6 {
		t.Errorf("exit code %d, want 6", code)
	}
}

// The reader of its first line goes away: that is no reason to let go.
func TestHoldOutlivesItsReader(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	root, file := leases(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "holdfast", "claim", "x", "--hold", "--root", root)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	_ = r.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := ended(cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the lease is still there: %v", err)
	}
}

// Several processes ask at the same instant, many times: one gets it, the others are told so.
func TestOneOfManyClaimantsWins(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	root, _ := leases(t)
	for round := range 12 {
		codes := make(chan int, 4)
		var all []*exec.Cmd
		for range cap(codes) {
			cmd := exec.CommandContext(t.Context(), "holdfast", "claim", "x", "--root", root, "--hold")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all = append(all, cmd)
			go func() { codes <- ended(cmd) }()
		}
		for range len(all) - 1 {
			if code := wait(t, codes); code != 3 {
				t.Fatalf("round %d: exit code %d, want 3", round, code)
			}
		}
		for _, cmd := range all {
			_ = cmd.Process.Signal(syscall.SIGTERM) // all but the winner have ended
		}
		if code := wait(t, codes); code != 0 {
			t.Fatalf("round %d: the winner's exit code is %d", round, code)
		}
	}
}

func wait(t *testing.T, codes <-chan int) int {
	t.Helper()
	select {
	case code := <-codes:
		return code
	case <-time.After(30 * time.Second):
		t.Fatal("nobody else ends: more than one holds it")
		return 0
	}
}
