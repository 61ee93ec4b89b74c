//go:build unix

package cli_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// piped starts `holdfast watch` into a pipe that the test reads when it likes.
func piped(t *testing.T, args ...string) (c *command, from *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	cmd := exec.Command("holdfast", append([]string{"watch"}, args...)...)
	cmd.Stdout = w
	c = &command{Cmd: cmd, t: t, complaints: lines(t, cmd.StderrPipe)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return c, r
}

// Nothing changes any more after its reader has gone, as `head -1` does: it ends all the same, and quietly.
func TestWatchEndsWithItsReader(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"--json", "--plain", "--ascii"} {
		c, r := piped(t, form, t.TempDir())
		if line, err := bufio.NewReader(r).ReadString('\n'); err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		c.exits(0)
		if says := c.rest(c.complaints); says != "" {
			t.Errorf("it complains: %s", says)
		}
	}
}

func TestWatchEndsBySignal(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		c := watches(t, t.TempDir())
		c.hears(c.lines, "Nothing is stuck.")
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		c.exits(128 + int(sig))
		if says := c.rest(c.complaints); says != "" {
			t.Errorf("%v: it complains: %s", sig, says)
		}
	}
}

// Who starts it under nohup wants it to outlive the terminal; a claim likewise, which has the same ends.
func TestWatchIgnoresAHangupThatIsIgnored(t *testing.T) {
	t.Parallel()
	c := start(t, exec.Command("worker", "unheeding", "watch", t.TempDir()))
	c.hears(c.lines, "Nothing is stuck.")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} { // of two the lower is delivered first
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	c.exits(128 + int(syscall.SIGTERM))
}

// flood changes many locks in a loop until w, which is read, has told each round.
func flood(t *testing.T, root string, rounds int) (locks int) {
	t.Helper()
	const many = 300 // two rounds are more than a pipe holds
	w := watches(t, "--json", root)
	w.hears(w.lines, `"ready"`)
	for round := range rounds {
		for i := range many {
			beat(t, filepath.Join(root, fmt.Sprintf("%03d.lock", i)), fmt.Sprintf("round-%d", round), 0)
		}
		for told := 0; told < many; {
			if line := w.hears(w.lines, `"path"`); strings.Contains(line, fmt.Sprintf(`"round-%d"`, round)) {
				told++
			}
		}
	}
	return many
}

// A reader stops reading for a while, and the pipe is full. Then it is told in few lines what it missed.
func TestWatchLosesNothingForASlowReader(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c, r := piped(t, "--json", root)
	from := bufio.NewReader(r)
	next := func() change {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return decode(t, line)
	}
	if first := next(); first.Event != "ready" {
		t.Fatalf("it begins with %+v", first)
	}
	const rounds = 12
	many := flood(t, root, rounds)
	if err := os.Remove(filepath.Join(root, "000.lock")); err != nil {
		t.Fatal(err)
	}
	lock(t, filepath.Join(root, "last.lock"), "w", 77, "far-host", 0)

	told, last := map[string]string{}, false
	n := 0
	for ; !last || told["000.lock"] != "gone"; n++ {
		c := next()
		name := filepath.Base(c.Path)
		told[name] = c.Event
		last = last || name == "last.lock"
	}
	if n < many || n > many*rounds/2 {
		t.Errorf("%d lines tell %d rounds of %d changes", n, rounds, many)
	}
	for i := 1; i < many; i++ {
		if name := fmt.Sprintf("%03d.lock", i); told[name] != "taken" && told[name] != "appeared" {
			t.Errorf("of %s was told %q", name, told[name])
		}
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.exits(128 + int(syscall.SIGINT))
}

// Nobody reads, the pipe is full: a signal ends it all the same, and so does the reader's end.
func TestWatchEndsThoughThePipeIsFull(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bySignal, first := piped(t, "--json", root)
	byReader, second := piped(t, "--json", root)
	for _, r := range []*os.File{first, second} {
		if _, err := r.Read(make([]byte, 1)); err != nil { // it watches
			t.Fatal(err)
		}
	}
	flood(t, root, 3)
	begin := time.Now()
	if err := bySignal.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	bySignal.exits(128 + int(syscall.SIGTERM))
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	byReader.exits(0)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("that took %v", took)
	}
	_ = first.Close()
}
