package proc_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"testing"
	"time"

	"holdfast/fslock/proc"
)

// helperEnv names the part that the test binary plays when a test runs it again as another process.
const helperEnv = "HOLDFAST_PROC_HELPER"

func TestMain(m *testing.M) {
	if part := os.Getenv(helperEnv); part != "" {
		play, ok := helpers()[part]
		if !ok {
			fmt.Fprintf(os.Stderr, "no helper %q\n", part)
			os.Exit(2)
		}
		if err := play(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helpers are the parts; every one tells about itself in one line of JSON and ends with its input.
func helpers() map[string]func(args []string) error {
	parts := map[string]func(args []string) error{
		"live": func([]string) error {
			if err := tell(proc.Local().Self()); err != nil {
				return err
			}
			return untilEOF()
		},
		"judge": func(args []string) error {
			var id proc.Identity
			if err := json.Unmarshal([]byte(args[0]), &id); err != nil {
				return err
			}
			return tell(proc.Local().Judge(id))
		},
	}
	maps.Copy(parts, platformHelpers())
	return parts
}

func tell(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

func untilEOF() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// child is a helper that runs till the end of the test.
type child struct {
	*exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

// start runs a helper, below the command in wrap if there is one.
func start(tb testing.TB, part string, wrap []string, args ...string) *child {
	tb.Helper()
	return startCmd(tb, command(tb, part, wrap, args...))
}

func command(tb testing.TB, part string, wrap []string, args ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	argv := append(append(append([]string{}, wrap...), self), args...)
	cmd := exec.CommandContext(tb.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), helperEnv+"="+part, "GORACE=atexit_sleep_ms=0") // else each waits a second
	cmd.Stderr = os.Stderr
	return cmd
}

func startCmd(tb testing.TB, cmd *exec.Cmd) *child {
	tb.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := &child{cmd, in, bufio.NewReader(out)}
	tb.Cleanup(func() {
		_ = c.stdin.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// hear reads the next line that the helper tells.
func (c *child) hear(tb testing.TB, v any) {
	tb.Helper()
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		tb.Fatalf("the helper said %q: %v", line, err)
	}
}

// kill kills the helper and waits till it is reaped.
func (c *child) kill(tb testing.TB) {
	tb.Helper()
	if err := c.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
	_ = c.Wait()
}

// eventually waits for an outcome.
func eventually(tb testing.TB, what string, outcome func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !outcome(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not in 20 s: %s", what)
		}
	}
}

// recorded returns what a process writes of itself: as AFT, as AFT without a start, as AgentMux, and as we do.
func recorded(self proc.Self) map[string]proc.Identity {
	lock := proc.Identity{
		PID: uint32(self.PID), Host: self.Host, BootID: self.BootID,
		LastBeat: time.Now(), ModTime: time.Now(), LocalFS: true,
	}
	if self.StartTicks != 0 {
		lock.StartTicks = &self.StartTicks
	}
	old, lease, ours := lock, lock, lock
	old.BootID, old.StartTicks = "", nil
	lease.BootID, lease.StartTicks, lease.StartUnix, lease.ZeroUnknown = "", nil, self.StartUnix, true
	ours.PIDNS, ours.PidfdIno, ours.TimeNS, ours.StartUnix = self.PIDNS, self.PidfdIno, self.TimeNS, self.StartUnix
	return map[string]proc.Identity{"lock": lock, "old lock": old, "lease": lease, "ours": ours}
}
