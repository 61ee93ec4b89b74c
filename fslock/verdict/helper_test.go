package verdict

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// now is the moment of every look here.
var now = time.Date(2026, 9, 28, 12, 0, 0, 0, time.UTC)

// holderPID is the holder of everything that is held here: process 4242 on the machine "vm".
const holderPID = 4242

type (
	leaseMod func(*LeaseFacts)
	lockMod  func(*LockFacts)
	tokenMod func(*TokenFacts)
)

// seen is a look at a record that was last written that long ago, of a holder that runs here.
func seen(path string, age time.Duration) Seen {
	stamp := now.Add(-age)
	return Seen{
		Path: path, Look: now, Still: now, Beat: stamp, Host: "vm", Boot: "boot-1",
		File: record.Stat{ModTime: stamp, Size: 300},
		Proc: running(),
	}
}

// leaseFacts are those of a lease that its holder took three minutes ago and last renewed that long ago.
func leaseFacts(age time.Duration, mods ...leaseMod) *LeaseFacts {
	f := &LeaseFacts{
		Seen: seen("/leases/agent-1.lease.json", age),
		ID:   "agent-1", TTL: LeaseTTL, Interval: LeaseInterval,
		Record: &record.Lease{
			InstanceID: "agent-1", OwnerBootID: "owner-a", BlockID: "block-1", PID: holderPID,
			AcquiredAtMS: now.Add(-3 * time.Minute).UnixMilli(), RenewedAtMS: now.Add(-age).UnixMilli(),
			Epoch: 5, Hostname: "vm", PIDStartS: 1000, Channel: "stable", Version: "0.57.4", ClaimID: "claim-1",
		},
		Counter: Counter{Path: "/leases/agent-1.epoch", Value: 5},
	}
	for _, mod := range mods {
		mod(f)
	}
	return f
}

// lockFacts are those of a lock that its holder made three minutes ago, with its last heartbeat that long ago.
func lockFacts(age time.Duration, mods ...lockMod) *LockFacts {
	f := &LockFacts{
		Seen: seen("/aft/index/k/cache.lock", age),
		Record: &record.Lock{
			PID: holderPID, Hostname: "vm", ProcessStartTime: new(uint64(777)), BootID: new("boot-1"),
			CreatedAtMS:   uint64(now.Add(-3 * time.Minute).UnixMilli()),
			HeartbeatAtMS: uint64(now.Add(-age).UnixMilli()), WriterEpoch: "4242-1",
		},
	}
	for _, mod := range mods {
		mod(f)
	}
	return f
}

// tokenFacts are those of a token that the process 4242 made that long ago.
func tokenFacts(age time.Duration, mods ...tokenMod) *TokenFacts {
	l := lockFacts(age)
	l.Record.CreatedAtMS, l.Record.WriterEpoch = l.Record.HeartbeatAtMS, "reclaim-4242-1"
	f := &TokenFacts{Seen: l.Seen, Record: l.Record}
	f.Path = "/aft/index/k/.cache.lock.reclaim"
	for _, mod := range mods {
		mod(f)
	}
	return f
}

func running() proc.Finding {
	return proc.Finding{
		Answer: proc.Alive, Machine: proc.Here, PID: holderPID, Occupant: proc.Process{PID: holderPID, Name: "node"},
		Under:  proc.Under{Exists: true, Readable: true, StartTicks: 777, StartUnix: 1000},
		Checks: []proc.Check{{Name: "pid", Saw: "here", Speaks: proc.ForAlive}},
	}
}

func standing(c proc.Condition) proc.Finding {
	f := running()
	f.Condition = c
	return f
}

// gone is a holder that is proven dead.
func gone(cause proc.Cause) proc.Finding {
	f := proc.Finding{Answer: proc.Dead, Cause: cause, Machine: proc.Here, Checks: []proc.Check{{Name: "pid", Saw: "none"}}}
	switch cause {
	case proc.Recycled:
		f.Occupant = proc.Process{PID: holderPID, Name: "postgres", Started: now.Add(-time.Hour)}
		f.Under = proc.Under{Exists: true, Readable: true, StartTicks: 9121, StartUnix: 2000}
	case proc.Zombie:
		f.PID, f.Parent = holderPID, proc.Process{PID: 17, Name: "sh"}
		f.Under = running().Under
	default:
	}
	return f
}

// away is a holder on another machine.
func away() proc.Finding {
	return proc.Finding{Machine: proc.Elsewhere, Why: "another machine", Checks: []proc.Check{{Name: "host", Saw: "web02"}}}
}

// hidden is a holder on this machine that cannot be judged.
func hidden(why string) proc.Finding {
	return proc.Finding{Machine: proc.Here, Why: why, Checks: []proc.Check{{Name: "pid", Skipped: why}}}
}

func leaseProc(p proc.Finding) leaseMod { return func(f *LeaseFacts) { f.Proc = p } }
func lockProc(p proc.Finding) lockMod   { return func(f *LockFacts) { f.Proc = p } }
func tokenProc(p proc.Finding) tokenMod { return func(f *TokenFacts) { f.Proc = p } }

func leaseOn(host string) leaseMod {
	return func(f *LeaseFacts) { f.Record.Hostname, f.Proc = host, away() }
}

func lockOn(host string) lockMod {
	return func(f *LockFacts) { f.Record.Hostname, f.Record.BootID, f.Proc = host, new("boot-9"), away() }
}

// nothing is what a missing file leaves of a look.
func nothing(s *Seen) {
	s.Missing, s.File, s.Beat, s.Proc = true, record.Stat{}, time.Time{}, proc.Finding{}
}

func noLease(f *LeaseFacts) { nothing(&f.Seen); f.Record = nil }
func noLock(f *LockFacts)   { nothing(&f.Seen); f.Record = nil }

// spoiled is what an unreadable file leaves of a look: only one that was read has a time.
func spoiled(s *Seen, e *record.Error) {
	e.Path = s.Path
	s.Problem, s.Beat, s.Proc = e, time.Time{}, proc.Finding{}
	if e.Problem != record.Malformed {
		s.File = record.Stat{}
	}
}

func badLease(e record.Error) leaseMod {
	return func(f *LeaseFacts) { spoiled(&f.Seen, &e); f.Record = nil }
}

func badLock(e record.Error) lockMod {
	return func(f *LockFacts) { spoiled(&f.Seen, &e); f.Record = nil }
}

func badToken(e record.Error) tokenMod {
	return func(f *TokenFacts) { spoiled(&f.Seen, &e); f.Record = nil }
}

func counter(c Counter) leaseMod { return func(f *LeaseFacts) { f.Counter = c } }

func with(t *TokenFacts) lockMod { return func(f *LockFacts) { f.Token = t } }

// The kinds of unreadable files.
var (
	torn     = record.Error{Op: "parse", Problem: record.Malformed, Offset: 112, Torn: true, Detail: "ends too early"}
	empty    = record.Error{Op: "parse", Problem: record.Malformed, Torn: true, Detail: "empty"}
	garbage  = record.Error{Op: "parse", Problem: record.Malformed, Offset: 3, Detail: "not an object"}
	symlink  = record.Error{Op: "open", Problem: record.NotRegular, Detail: "a symlink"}
	fifo     = record.Error{Op: "open", Problem: record.NotRegular, Detail: "a FIFO"}
	dir      = record.Error{Op: "open", Problem: record.NotRegular, Detail: "a directory"}
	tooLarge = record.Error{Op: "read", Problem: record.TooLarge, Detail: "1073741824 bytes"}
	denied   = record.Error{Op: "open", Problem: record.Denied, Detail: "owned by uid 0, mode 0600"}
)

// want is what a verdict must be. At counts from now.
type want struct {
	state State
	cause string
	when  When
	at    time.Duration // for At, and for what blocks till then
	by    string        // part of Claimable.By
	flags Flag
	stuck bool
	exit  int
	says  []string // parts of the sentence
	next  []string // the next commands
}

func check(t *testing.T, v Verdict, w want) {
	t.Helper()
	got := want{state: v.State, cause: v.Cause, when: v.Claimable.When, flags: v.Flags, stuck: v.Stuck, exit: v.ExitCode()}
	same := w
	same.at, same.by, same.says, same.next = 0, "", nil, nil
	if g, s := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", same); g != s {
		t.Errorf("got  %s\nwant %s\nsentence: %s", g, s, v.Sentence)
	}
	if at := v.Claimable.At; at.IsZero() != (w.at == 0) || w.at != 0 && at.Sub(now) != w.at {
		t.Errorf("claimable at %v, want %v from %v", at, w.at, now)
	}
	if (v.Claimable.By == "") != (w.by == "") || !strings.Contains(v.Claimable.By, w.by) {
		t.Errorf("claimable by %q, want %q", v.Claimable.By, w.by)
	}
	for _, part := range w.says {
		if !strings.Contains(v.Sentence, part) {
			t.Errorf("the sentence does not say %q: %s", part, v.Sentence)
		}
	}
	if w.next != nil && !slices.Equal(v.Next, w.next) {
		t.Errorf("next %q, want %q", v.Next, w.next)
	}
	if len(v.Evidence) == 0 {
		t.Error("a verdict without evidence")
	}
	for _, c := range v.Evidence {
		if c.Name == "" || (c.Saw == "") == (c.Skipped == "") {
			t.Errorf("a check that tells neither what it saw nor why not, or both: %+v", c)
		}
	}
}

// saw returns what the checks of that name saw.
func saw(v Verdict, name string) string {
	var all []string
	for _, c := range v.Evidence {
		if c.Name == name {
			all = append(all, c.Saw+c.Skipped)
		}
	}
	return strings.Join(all, "; ")
}
