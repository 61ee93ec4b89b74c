package fslock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// machine is a made-up machine called "here", booted an hour ago, with the process 4242 on it.
func machine(mod ...func(*proctest.Machine)) *proc.Table {
	m := proctest.Machine{
		Host: "here", BootID: "boot", BootAt: time.Now().Add(-time.Hour), PIDNS: 1, Initial: true, TimeNS: 2,
		Procs: []proctest.Proc{{PID: 4242, Start: 777, Name: "node"}, {PID: 5151, Start: 888, Name: "indexer"}},
	}
	for _, f := range mod {
		f(&m)
	}
	return proctest.Table(m)
}

// lockRecord is the record of process 4242 on that machine, taken a minute ago, as AFT writes it.
func lockRecord(beat time.Duration, mod ...func(*record.Lock)) *record.Lock {
	r := &record.Lock{
		PID: 4242, Hostname: "here", ProcessStartTime: new(uint64(777)), BootID: new("boot"),
		CreatedAtMS: ms(-time.Minute - beat), HeartbeatAtMS: ms(-beat), WriterEpoch: "4242-1",
	}
	for _, f := range mod {
		f(r)
	}
	return r
}

func dead(r *record.Lock)   { r.PID = 999_999 }
func remote(r *record.Lock) { r.Hostname, r.BootID = "web02", new("elsewhere") }

func ms(from time.Duration) uint64 { return uint64(time.Now().Add(from).UnixMilli()) }

// put writes a file that was last changed that long ago.
func put(t *testing.T, path string, data []byte, age time.Duration) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

// putLock writes a lock that was last changed at its last heartbeat.
func putLock(t *testing.T, dir, name string, r *record.Lock) string {
	t.Helper()
	age := time.Since(verdict.MilliU(r.HeartbeatAtMS))
	return put(t, filepath.Join(dir, name), r.Encode(), age)
}

// want is what a verdict must say.
type want struct {
	state verdict.State
	cause string
	when  verdict.When
	flags verdict.Flag
}

func expect(t *testing.T, got verdict.Verdict, w want) {
	t.Helper()
	if got.State != w.state || got.Cause != w.cause || got.Claimable.When != w.when || got.Flags != w.flags {
		t.Errorf("got %v (%s), claimable %v, flags %v;\nwant %v (%s), claimable %v, flags %v\nsentence: %s",
			got.State, got.Cause, got.Claimable.When, got.Flags.Strings(),
			w.state, w.cause, w.when, w.flags.Strings(), got.Sentence)
	}
}

// about checks that a time is as far from now as it should be, give or take the time that a test takes.
func about(t *testing.T, what string, got time.Time, want time.Duration) {
	t.Helper()
	if d := time.Until(got); (d - want).Abs() > 5*time.Second {
		t.Errorf("%s in %v, want about %v", what, d, want)
	}
}

// skip skips a test that this machine cannot run; where everything must run, it fails instead.
func skip(t *testing.T, why ...any) {
	t.Helper()
	if os.Getenv("HOLDFAST_STRICT") == "1" {
		t.Fatal(why...)
	}
	t.Skip(why...)
}
