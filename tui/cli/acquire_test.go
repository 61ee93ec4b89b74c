package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// acquire starts holding a lock, and waits until it does.
func acquire(t *testing.T, lock string, args ...string) *command {
	t.Helper()
	c := start(t, exec.Command("holdfast", append([]string{"acquire", lock}, args...)...))
	c.hears(c.lines, "held "+lock+": writer epoch ")
	return c
}

func TestAcquireEndsBySignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	for _, c := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGTERM, 0}, {syscall.SIGINT, 0}, {syscall.SIGHUP, 128 + 1}, {syscall.SIGQUIT, 128 + 3}} {
		lock := filepath.Join(t.TempDir(), "cache.lock")
		h := acquire(t, lock)
		if err := h.Process.Signal(c.sig); err != nil {
			t.Fatal(err)
		}
		h.hears(h.lines, "released "+lock)
		h.exits(c.code)
		gone(t, lock)
	}
}

// Who waits is told what for, once; ended by a signal, it has held nothing.
func TestAcquireWaits(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	lock := filepath.Join(t.TempDir(), "cache.lock")
	h := acquire(t, lock)
	interrupted := start(t, exec.Command("holdfast", "acquire", lock))
	interrupted.hears(interrupted.complaints, "waiting for lock "+lock+": Held.")
	if err := interrupted.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	interrupted.exits(128 + 2)
	if out := interrupted.rest(interrupted.lines); out != "" {
		t.Errorf("it says %q", out)
	}

	next := start(t, exec.Command("holdfast", "acquire", lock, "--for", "1ms"))
	next.hears(next.complaints, "waiting for lock "+lock+": Held.")
	if err := h.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.exits(0)
	next.hears(next.lines, "held "+lock)
	next.exits(0)
	if complaints := next.rest(next.complaints); complaints != "" {
		t.Errorf("then it says %q", complaints)
	}
	gone(t, lock)
}

// Somebody removes the lock under a running holder: it says so and ends.
func TestAcquireThatIsLostEnds(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "cache.lock")
	h := acquire(t, lock)
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if line := h.hears(h.lines, "lost"); line != "lost "+lock {
		t.Errorf("it says %q", line)
	}
	h.exits(6)
	complaints := h.rest(h.complaints)
	if !strings.Contains(complaints, "acquire "+lock+": lock is lost: Its file is gone") || strings.Contains(complaints, "level=") {
		t.Errorf("it says %q", complaints)
	}
}

// Nobody has looked since it was lost: its holder's end is no clean one.
func TestLossIsFoundByTheHoldersEnd(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	lock := filepath.Join(t.TempDir(), "cache.lock")
	h := acquire(t, lock)
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := h.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.hears(h.lines, "lost "+lock)
	h.exits(6)
}

func TestKilledHolderIsFollowedAtOnce(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "cache.lock")
	h := acquire(t, lock)
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.exits(-1)
	next := start(t, exec.Command("holdfast", "acquire", lock, "--for", "1ms", "--timeout", "0"))
	next.exits(0)
	if complaints := next.rest(next.complaints); !strings.Contains(complaints, "level=WARN") {
		t.Errorf("it says %q", complaints)
	}
	gone(t, lock)
}
