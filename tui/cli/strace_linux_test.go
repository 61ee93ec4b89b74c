package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock"
)

// slow is the program with a delay before each of those system calls.
func slow(t *testing.T, calls string, by time.Duration, args ...string) *exec.Cmd {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("HOLDFAST_STRICT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	// A container may not let anybody trace: that is no fault of its.
	if out, err := exec.CommandContext(t.Context(), strace, "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace is not allowed here: %v: %s", err, out)
	}
	program, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), strace, append([]string{
		"-f", "-qq", "-o", os.DevNull, "-e", "trace=" + calls, "-e", "inject=" + calls + ":delay_enter=" + by.String(), program,
	}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to be killed with the program: a killed tracer lets that go
	return cmd
}

// Both have seen the same dead holder when the first of them is about to remove its lock.
func TestTwoBreakersWithADelayBetweenCheckAndAct(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cache.lock")
	lock(t, path, "w-1", deadPID(t), host(t), time.Minute)
	codes := make(chan int, 2)
	for range 2 {
		cmd := slow(t, "unlink,unlinkat", 300*time.Millisecond, "break", path, "--expect", "w-1", "--yes")
		go func() { codes <- codeOf(cmd) }()
	}
	if a, b := wait(t, codes), wait(t, codes); min(a, b) != 0 || max(a, b) != 6 {
		t.Errorf("exit codes %d and %d, want 0 and 6", a, b)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// The first has seen a free lock, and is about to publish its own when another one takes it.
func TestSlowContenderFindsTheLockTaken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cache.lock")
	cmd := slow(t, "link,linkat", 1500*time.Millisecond, "acquire", path, "--timeout", "0", "--for", "1ms")
	codes := make(chan int, 1)
	go func() { codes <- codeOf(cmd) }()
	// It has written its temp, and looks no more.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if temps, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".cache.lock.tmp.*")); len(temps) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it makes no temp")
		}
	}
	held, err := (&fslock.Locker{}).TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if code := wait(t, codes); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if err := held.Verify(); err != nil {
		t.Error(err)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}

// A killed one leaves what it had made so far; whoever comes next is not kept out by that.
func TestContenderKilledBeforeAnyOfItsCalls(t *testing.T) {
	t.Parallel()
	for _, calls := range []string{"link,linkat", "unlink,unlinkat", "flock"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "cache.lock")
		lock(t, path, "w-1", deadPID(t), host(t), time.Minute)
		// It takes over a dead holder's lock: every step of that can be its last.
		for delays := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond*time.Duration(delays+1))
			cmd := slow(t, calls, 300*time.Millisecond, "acquire", path, "--for", "1ms")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			killed := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			_ = cmd.Wait()
			killed()
			cancel()
		}
		limited, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		held, err := (&fslock.Locker{}).Acquire(limited, path)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", calls, err)
		}
		if err := held.Release(); err != nil {
			t.Error(err)
		}
		// One that its maker left on its way out blocks nobody.
		token := (&fslock.Locker{}).InspectToken(filepath.Join(dir, ".cache.lock.reclaim"))
		if !token.Facts.Missing && token.Facts.Blocks(time.Now()) {
			t.Errorf("%s: a token is left that blocks: %s", calls, token.Verdict.Sentence)
		}
	}
}

func host(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(name)
}
