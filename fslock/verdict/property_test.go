package verdict

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// Times are drawn near the limits that count, and from the ends of what a record can hold.
var (
	anyAge = rapid.OneOf(
		rapid.Map(rapid.Int64Range(-20_000, 100_000), func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }),
		rapid.Map(rapid.Int64Range(-7000, 7000), func(s int64) time.Duration { return time.Duration(s) * time.Second }),
		rapid.SampledFrom([]time.Duration{0, 1, -1, math.MaxInt64, math.MinInt64, LeaseTTL, LockLate, LockExpiry, LongHeldAfter, TokenMalformed, 24 * time.Hour}),
	)
	anyStamp = rapid.OneOf(
		rapid.Map(anyAge, func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }),
		rapid.SampledFrom([]int64{0, -1, 1, math.MaxInt64, math.MinInt64, now.UnixMilli()}),
		rapid.Int64(),
	)
	anyTime = rapid.OneOf(
		rapid.Map(anyAge, func(d time.Duration) time.Time { return now.Add(-d) }),
		rapid.Map(anyStamp, Milli),
		rapid.Just(time.Time{}),
	)
	anyProblem = rapid.Map(rapid.SampledFrom([]record.Error{torn, empty, garbage, symlink, fifo, dir, tooLarge, denied, {}}),
		func(e record.Error) *record.Error { return &e })
	anyText = rapid.OneOf(rapid.SampledFrom([]string{"", "vm", "web02"}), rapid.String())
)

// drawFinding draws what package proc may find: only the dead have a cause, only the living a condition.
func drawFinding(t *rapid.T) proc.Finding {
	f := proc.Finding{
		Answer:   rapid.SampledFrom([]proc.Liveness{proc.Unknown, proc.Alive, proc.Dead}).Draw(t, "answer"),
		Machine:  rapid.SampledFrom([]proc.Machine{proc.Unnamed, proc.Here, proc.Elsewhere}).Draw(t, "machine"),
		Why:      rapid.SampledFrom([]string{"", "another pid namespace"}).Draw(t, "why"),
		PID:      rapid.SampledFrom([]int{0, 1, holderPID}).Draw(t, "pid"),
		Occupant: proc.Process{PID: rapid.SampledFrom([]int{0, holderPID}).Draw(t, "occupant"), Name: "x"},
		Under: proc.Under{
			Exists: rapid.Bool().Draw(t, "exists"), Readable: rapid.Bool().Draw(t, "readable"),
			StartTicks: rapid.Uint64Max(3).Draw(t, "ticks"), StartUnix: rapid.Uint64Max(3).Draw(t, "seconds"),
		},
		Checks: []proc.Check{{Name: "pid", Saw: "something"}},
	}
	switch f.Answer {
	case proc.Dead:
		f.Cause = rapid.SampledFrom([]proc.Cause{proc.Gone, proc.Recycled, proc.Reboot, proc.Zombie}).Draw(t, "cause")
	case proc.Alive:
		f.Machine = proc.Here
		f.Condition = rapid.SampledFrom([]proc.Condition{proc.Running, proc.Stopped, proc.Traced, proc.Frozen}).Draw(t, "condition")
		f.Legacy, f.ClockStep = rapid.Bool().Draw(t, "legacy"), rapid.Bool().Draw(t, "step")
	default:
	}
	return f
}

// drawSeen draws a look that found a record, an unreadable file, or none.
func drawSeen(t *rapid.T, path string) (s Seen, readable bool) {
	s = Seen{
		Path: path, Look: now, Still: anyTime.Draw(t, "still"), Booted: rapid.Bool().Draw(t, "booted"),
		Self: rapid.Bool().Draw(t, "self"), Host: anyText.Draw(t, "host"), Boot: rapid.SampledFrom([]string{"", "boot-1"}).Draw(t, "boot"),
		File: record.Stat{ModTime: anyTime.Draw(t, "mtime")},
	}
	if rapid.Bool().Draw(t, "odd look") {
		s.Look = anyTime.Draw(t, "look")
	}
	switch rapid.IntRange(0, 5).Draw(t, "found") {
	case 0:
		s.Missing = true
	case 1:
		s.Problem = anyProblem.Draw(t, "problem")
	default:
		s.Proc = drawFinding(t)
		return s, true
	}
	return s, false
}

func drawLease(t *rapid.T) *LeaseFacts {
	f := &LeaseFacts{ID: anyText.Draw(t, "id"), TTL: LeaseTTL, Interval: LeaseInterval}
	readable := false
	f.Seen, readable = drawSeen(t, "/leases/x.lease.json")
	if rapid.Bool().Draw(t, "own limits") {
		f.TTL = time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "ttl"))
		f.Interval = time.Duration(rapid.Int64Range(1, int64(f.TTL)).Draw(t, "interval"))
	}
	if readable {
		f.Record = &record.Lease{
			PID: rapid.Uint32().Draw(t, "pid"), AcquiredAtMS: anyStamp.Draw(t, "acquired"), RenewedAtMS: anyStamp.Draw(t, "renewed"),
			Epoch:    rapid.SampledFrom([]uint64{0, 1, 5, math.MaxUint64}).Draw(t, "epoch"),
			Hostname: anyText.Draw(t, "recorded host"), PIDStartS: rapid.Uint64Max(3).Draw(t, "start"), InstanceID: anyText.Draw(t, "instance"),
		}
		f.Beat = Milli(f.Record.RenewedAtMS)
	}
	switch rapid.IntRange(0, 2).Draw(t, "counter") {
	case 0:
		f.Counter.Missing = true
	case 1:
		f.Counter.Problem = anyProblem.Draw(t, "counter problem")
	default:
		f.Counter.Value = rapid.SampledFrom([]uint64{0, 1, 5, math.MaxUint64}).Draw(t, "count")
	}
	if rapid.IntRange(0, 9).Draw(t, "section") == 0 {
		f.Section = anyProblem.Draw(t, "section problem")
	}
	if rapid.IntRange(0, 9).Draw(t, "inside") == 0 {
		f.Inside = []proc.FlockHolder{{Process: proc.Process{PID: 9}, Stopped: true}}
	}
	return f
}

func drawLockRecord(t *rapid.T) *record.Lock {
	r := &record.Lock{
		PID: rapid.Uint32().Draw(t, "pid"), Hostname: anyText.Draw(t, "recorded host"),
		CreatedAtMS: uint64(anyStamp.Draw(t, "created")), HeartbeatAtMS: uint64(anyStamp.Draw(t, "beat")),
	}
	if rapid.Bool().Draw(t, "identified") {
		r.ProcessStartTime, r.BootID = new(rapid.Uint64Max(3).Draw(t, "start")), new("boot-1")
	}
	return r
}

func drawToken(t *rapid.T) *TokenFacts {
	f := &TokenFacts{}
	readable := false
	if f.Seen, readable = drawSeen(t, "/aft/.x.lock.reclaim"); readable {
		f.Record = drawLockRecord(t)
		f.Beat = MilliU(f.Record.HeartbeatAtMS)
	}
	return f
}

func drawLock(t *rapid.T) *LockFacts {
	f := &LockFacts{}
	readable := false
	if f.Seen, readable = drawSeen(t, "/aft/x.lock"); readable {
		f.Record = drawLockRecord(t)
		f.Beat = MilliU(f.Record.HeartbeatAtMS)
	}
	if rapid.Bool().Draw(t, "token") {
		f.Token = drawToken(t)
	}
	if rapid.IntRange(0, 4).Draw(t, "written") == 0 {
		f.Writers = []int{31}
	}
	return f
}

// checkVerdict checks what holds for every verdict of a lease, a lock or a token.
func checkVerdict(t *rapid.T, s Subject, seen *Seen, at time.Time) Verdict {
	v := s.Judge(at)
	if v.Sentence == "" || len(v.Evidence) == 0 {
		t.Fatalf("a verdict that explains nothing: %+v", v)
	}
	if v.State == Dead && seen.Proc.Answer != proc.Dead {
		t.Fatalf("dead without a proof: %s", v.Sentence)
	}
	if v.State == Dead != (v.Cause == string(proc.Gone) || v.Cause == string(proc.Recycled) || v.Cause == string(proc.Reboot) || v.Cause == string(proc.Zombie)) {
		t.Fatalf("%v of %q", v.State, v.Cause)
	}
	if !v.Changes.IsZero() && !v.Changes.After(at) {
		t.Fatalf("judged at %v, changes at %v", at, v.Changes)
	}
	_, _, _ = v.ExitCode(), v.Flags.Strings(), v.State.String()
	return v
}

// checkChanges checks that a verdict stands until it changes, and changes then.
func checkChanges(t *rapid.T, s Subject, v Verdict, at time.Time, decides func(Verdict, time.Time) any) {
	if v.Changes.IsZero() {
		later := at.Add(time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "later")))
		if w := s.Judge(later); w.State != v.State || w.Claimable.When != v.Claimable.When {
			t.Fatalf("%v, %v never changes, but is %v, %v later", v.State, v.Claimable.When, w.State, w.Claimable.When)
		}
		return
	}
	before := at.Add(time.Duration(rapid.Int64Range(0, max(0, int64(v.Changes.Sub(at))-1)).Draw(t, "before")))
	if w := s.Judge(before); w.State != v.State || w.Claimable.When != v.Claimable.When || !w.Changes.Equal(v.Changes) {
		t.Fatalf("%v, %v changes at %v, but is %v, %v, changing at %v, already at %v", v.State, v.Claimable.When, v.Changes, w.State, w.Claimable.When, w.Changes, before)
	}
	for _, then := range []time.Time{v.Changes, v.Changes.Add(1)} {
		if w := s.Judge(then); decides(w, then) == decides(v, at) {
			t.Fatalf("%v, %v does not change at %v", v.State, v.Claimable.When, then)
		}
	}
}

func TestLeaseVerdictsHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawLease(t)
		at := anyTime.Draw(t, "now")
		v := checkVerdict(t, f, &f.Seen, at)
		checkBlocked(t, v)
		if v.Claimable.When == Event || v.Flags.Has(LongHeld) {
			t.Fatalf("that is for locks: %+v", v)
		}
		if v.State == Expired && !at.After(f.Expires()) || v.State == Late && Age(f.Beat, at) <= f.lateAfter() {
			t.Fatalf("%v too early", v.State)
		}
		if f.Record != nil && f.Proc.Answer != proc.Dead && v.Claimable.When == Now {
			renewed := Milli(f.Record.RenewedAtMS)
			watched := !f.Still.IsZero() && f.Still.Before(renewed)
			if !watched && renewed.Before(f.Look) && !at.After(renewed.Add(f.TTL)) {
				t.Fatalf("a holder that nobody proved dead lost its lease early")
			}
		}
		next, refusal := f.NextEpoch()
		if refusal == "" && (next == 0 || f.Record != nil && next <= f.Record.Epoch || next <= f.Counter.Value) {
			t.Fatalf("the next epoch is %d", next)
		}
		if refusal != "" && v.Claimable.When == Now {
			t.Fatalf("claimable without an epoch: %s", refusal)
		}
		checkChanges(t, f, v, at, func(v Verdict, _ time.Time) any { return coreOf(v) })
	})
}

func TestLockVerdictsHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawLock(t)
		at := anyTime.Draw(t, "now")
		v := checkVerdict(t, f, &f.Seen, at)
		checkBlocked(t, v)
		if f.proven() && f.Record != nil && v.Claimable.When != Event {
			t.Fatalf("a lock of a living holder is claimable: %+v", v)
		}
		if f.Problem != nil && !f.Problem.Torn && v.Claimable.When != Blocked {
			t.Fatalf("what is no torn record is offered for removal: %+v", v)
		}
		if v.Claimable.When == Now && v.State != Free && f.Token != nil && f.Token.Blocks(at) {
			t.Fatal("claimable although a token blocks it")
		}
		if v.Flags.Has(LongHeld) && v.State != Live && v.State != Late && v.State != Stopped {
			t.Fatalf("long-held and %v", v.State)
		}
		checkChanges(t, f, v, at, func(v Verdict, _ time.Time) any { return coreOf(v) })
	})
}

func checkBlocked(t *rapid.T, v Verdict) {
	blocked := v.Claimable.When == Blocked
	if v.Flags.Has(IsBlocked) != blocked || (v.Claimable.By != "") != blocked {
		t.Fatalf("claimable %+v, flags %v", v.Claimable, v.Flags.Strings())
	}
	if v.Stuck != (blocked || v.State == Stopped && v.Claimable.When == Event) {
		t.Fatalf("%v, %v, stuck %v", v.State, v.Claimable.When, v.Stuck)
	}
	if v.Claimable.When == At && v.Claimable.At.IsZero() {
		t.Fatal("claimable, but not told when")
	}
	if len(v.Originals) != 1 || v.Originals[0].Does == "" || v.Originals[0].Why == "" || len(v.Next) == 0 {
		t.Fatalf("originals %+v, next %q", v.Originals, v.Next)
	}
}

func TestTokenVerdictsHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawToken(t)
		at := anyTime.Draw(t, "now")
		v := checkVerdict(t, f, &f.Seen, at)
		if tok := f.Token(at); tok.State != v.State || !tok.Clears.IsZero() && !f.Blocks(at) {
			t.Fatalf("told as %+v", tok)
		}
		if !f.Blocks(at) && v.State != Dead && v.State != Malformed && !f.Missing {
			t.Fatalf("%v, and does not block", v.State)
		}
		checkChanges(t, f, v, at, func(_ Verdict, at time.Time) any { return f.Blocks(at) })
	})
}

func TestTempsAreLitterOnlyWhenProven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &TempFacts{PID: rapid.SampledFrom([]uint32{0, 1, holderPID}).Draw(t, "pid")}
		readable := false
		if f.Seen, readable = drawSeen(t, "/aft/.x.lock.tmp.1.1.1"); readable {
			f.Record = drawLockRecord(t)
			f.PID = f.Record.PID
		}
		v := checkVerdictOfTemp(t, f, anyTime.Draw(t, "now"))
		if (v.State == Litter) != (f.PID != 0 && f.Proc.Answer == proc.Dead) {
			t.Fatalf("%v: %s", v.State, v.Sentence)
		}
	})
}

func checkVerdictOfTemp(t *rapid.T, f *TempFacts, at time.Time) Verdict {
	v := f.Judge(at)
	if v.Sentence == "" || len(v.Evidence) == 0 || v.ExitCode() != 0 || v.State != InUse && v.State != Litter {
		t.Fatalf("%+v", v)
	}
	return v
}
