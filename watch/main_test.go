package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/fslock"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// What a child of the tests does, and with what.
const (
	childVar = "HOLDFAST_WATCH_CHILD"
	argVar   = "HOLDFAST_WATCH_ARG"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childVar) {
	case "":
		goleak.VerifyTestMain(m)
	case "hold": // exists until its input ends, having said who it is
		_ = json.NewEncoder(os.Stdout).Encode(proc.Local().Self())
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "look": // looks at a root once and tells what it saw
		w := &Watcher{Roots: []Root{{Path: os.Getenv(argVar)}}}
		s, err := w.Look(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		fmt.Print(lines(s))
	case "flock": // waits for an flock
		f, err := os.OpenFile(os.Getenv(argVar), os.O_RDWR, 0)
		if err == nil {
			err = waitForFlock(f)
		}
		fmt.Fprintln(os.Stderr, "the flock was had:", err)
		os.Exit(3)
	case "limited": // runs a watcher with an inotify limit that it raises
		os.Exit(watchWithinLimit(os.Getenv(argVar)))
	case "renew": // renews leases, as fast as it is told, until its input ends
		renewForever(os.Getenv(argVar))
	case "acquire": // waits for a lock
		_, err := new(fslock.Locker).Acquire(context.Background(), os.Getenv(argVar))
		fmt.Fprintln(os.Stderr, "the lock was had:", err)
		os.Exit(3)
	}
}

// child returns a command that runs this test binary again as a child of that kind.
func child(tb testing.TB, binary, kind, arg string) *exec.Cmd {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), binary)
	cmd.Env = append(os.Environ(), childVar+"="+kind, argVar+"="+arg)
	cmd.Stderr = os.Stderr
	return cmd
}

func testBinary(tb testing.TB) string {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return exe
}

// startHolder starts a process that does nothing and returns who it is and what kills it. It is reaped at once.
func startHolder(tb testing.TB) (who proc.Self, kill func()) {
	tb.Helper()
	cmd := child(tb, testBinary(tb), "hold", "")
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
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = in.Close()
	})
	tb.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(line, &who); err != nil {
		tb.Fatal(err)
	}
	return who, kill
}

// skip says why a test cannot run on this machine, which fails where all must run.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("HOLDFAST_STRICT") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// lines tells a snapshot in text, without what differs from look to look.
func lines(s *Snapshot) string {
	var b strings.Builder
	for _, r := range s.Roots {
		fmt.Fprintf(&b, "root %s %s\n", r.Kind, r.Path)
	}
	for _, e := range s.Entries {
		fmt.Fprintf(&b, "%s %s %s", e.Kind, e.Path, e.Verdict.State)
		if e.Verdict.Cause != "" {
			fmt.Fprintf(&b, " (%s)", e.Verdict.Cause)
		}
		if e.Verdict.Stuck {
			b.WriteString(" stuck")
		}
		b.WriteByte('\n')
	}
	for _, e := range s.Errors {
		fmt.Fprintf(&b, "error %s: %v\n", e.Path, e.Err)
	}
	return b.String()
}

// ours are the fields by which a death is proven also where other users' processes are hidden.
func ours(who proc.Self) record.Ours { return record.Ours{PIDNS: who.PIDNS, TimeNS: who.TimeNS} }

// newLease is a lease that who holds and has renewed at.
func newLease(who proc.Self, id string, at time.Time) record.Lease {
	o := ours(who)
	o.KernelBootID, o.PIDStartTicks = who.BootID, who.StartTicks
	return record.Lease{
		Ours:       o,
		InstanceID: id, OwnerBootID: "owner-1", BlockID: "block-1", PID: uint32(who.PID),
		AcquiredAtMS: at.UnixMilli(), RenewedAtMS: at.UnixMilli(), Epoch: 3, Hostname: strings.ToLower(who.Host),
		PIDStartS: who.StartUnix, Channel: "stable", Version: "0.57", ClaimID: "claim-" + id,
	}
}

// newLock is a lock that who holds and has beaten at.
func newLock(who proc.Self, at time.Time) record.Lock {
	l := record.Lock{
		PID: uint32(who.PID), Hostname: who.Host, CreatedAtMS: uint64(at.UnixMilli()), HeartbeatAtMS: uint64(at.UnixMilli()),
		WriterEpoch: "writer-1", Ours: ours(who),
	}
	if who.StartTicks != 0 {
		l.ProcessStartTime = &who.StartTicks
	}
	if who.BootID != "" {
		l.BootID = &who.BootID
	}
	return l
}

// put writes a file as the originals do, by rename, and makes its directory; its time is now, which in a bubble is
// not the system's.
func put(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	temp := filepath.Join(filepath.Dir(path), ".writing")
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	now := time.Now()
	if err := os.Chtimes(temp, now, now); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		tb.Fatal(err)
	}
}

// putLease writes a lease and its counter below a directory of leases.
func putLease(tb testing.TB, dir string, l record.Lease) {
	tb.Helper()
	put(tb, filepath.Join(dir, l.InstanceID+".epoch"), record.EncodeCounter(l.Epoch))
	put(tb, filepath.Join(dir, l.InstanceID+".lease.json"), l.Encode())
}

func putLock(tb testing.TB, path string, l record.Lock) {
	tb.Helper()
	put(tb, path, l.Encode())
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// find returns the entry of that path; nil when there is none.
func find(s *Snapshot, path string) *Entry {
	for i := range s.Entries {
		if s.Entries[i].Path == path {
			return s.Entries[i]
		}
	}
	return nil
}

// is reports whether the entry of that path is there in that state.
func is(s *Snapshot, path string, state verdict.State) bool {
	e := find(s, path)
	return e != nil && e.Verdict.State == state
}
