package verdict

import (
	"fmt"
	"math"
	"strings"
	"time"

	"holdfast/fslock/record"
)

// What an original does. These are predictions by its own rules, for a claimant of another owner that asks now.
const (
	takes   = "takes it"
	refuses = "refuses"
	waits   = "waits"
	removes = "removes it and takes the lock"
	hangs   = "hangs"
	fails   = "fails"
	spins   = "spins"
	follows = "follows it"
	reads   = "reads it"
)

// agentMux is what AgentMux's next claim by another owner would do.
func (f *LeaseFacts) agentMux(now time.Time) Original {
	does, reason := f.agentMuxDoes(now)
	return Original{System: "AgentMux", Does: does, Why: reason}
}

func (f *LeaseFacts) agentMuxDoes(now time.Time) (does, why string) {
	if p, ok := f.stoppedInside(); ok {
		return hangs, fmt.Sprintf("it waits for the critical section without a limit, and pid %d is stopped inside", p.PID)
	}
	switch {
	case f.Section != nil:
		return opened(f.Section, "the flock file")
	case f.Problem != nil && f.Problem.Problem != record.Malformed:
		return opened(f.Problem, "the lease")
	case f.Missing:
		return f.agentMuxTakes("there is no lease file")
	case f.Problem != nil:
		// It asks the file's own age; a time in the future counts as just written.
		if age := now.Sub(f.File.ModTime); age.Milliseconds() > LeaseTTL.Milliseconds() {
			return f.agentMuxTakes(fmt.Sprintf("nobody rewrote the unreadable file for %s", ago(age)))
		}
		return refuses, "an unreadable lease is held until its file time is over the TTL"
	}
	r := f.Record
	// In its integers, which wrap round as ours do: an age that is too long for them counts as none.
	age := min(max(0, now.UnixMilli()-r.RenewedAtMS), math.MaxInt64/int64(time.Millisecond))
	renewed := ago(time.Duration(age) * time.Millisecond)
	switch {
	case age > LeaseTTL.Milliseconds():
		return f.agentMuxTakes(fmt.Sprintf("renewed %s ago, over the TTL", renewed))
	case r.Hostname == "" || r.PID == 0:
		return refuses, "unexpired, and no host or pid is recorded by which it could be called dead"
	case r.Hostname != strings.ToLower(strings.TrimSpace(f.Host)):
		return refuses, "unexpired, and of another host, which it never presumes dead"
	case !f.Proc.Under.Readable:
		return f.agentMuxTakes(fmt.Sprintf("it sees no process %d here", r.PID))
	case r.PIDStartS != 0 && f.Proc.Under.StartUnix != r.PIDStartS:
		return f.agentMuxTakes(fmt.Sprintf("the start time of pid %d is not exactly the recorded one", r.PID))
	}
	return refuses, fmt.Sprintf("pid %d runs and renewed %s ago", r.PID, renewed)
}

// agentMuxTakes is what becomes of a claim that it grants: it reads the counter without looking at what that is, and
// one that it cannot read counts as 0.
func (f *LeaseFacts) agentMuxTakes(because string) (does, why string) {
	c := f.Counter
	known := f.Record != nil && f.Record.Epoch > 0
	switch {
	case c.Problem != nil && c.Problem.Problem == record.NotRegular:
		does, why = opened(c.Problem, "the epoch counter")
		return does, because + ", but " + why
	case !known && (c.Problem != nil || c.Missing && f.Problem != nil):
		return takes, because + "; its epochs would restart at 1"
	}
	return takes, because
}

// opened is what becomes of an original that opens the file without looking at what it is.
func opened(e *record.Error, what string) (does, why string) {
	switch {
	case e.Problem == record.Denied:
		return fails, what + " cannot be opened by this user"
	case e.Problem == record.TooLarge:
		return reads, "it reads " + what + " whatever its size; what it makes of it depends on what is in it"
	case strings.Contains(e.Detail, "FIFO"):
		return hangs, "it opens " + what + ", a FIFO, and waits for the other end"
	case strings.Contains(e.Detail, "symlink"):
		return follows, "it opens whatever the link at " + what + " points to"
	default:
		return fails, what + " is " + e.Detail
	}
}

// aft is what AFT's next attempt would do.
func (f *LockFacts) aft(now time.Time) Original {
	does, reason := f.aftDoes(now)
	return Original{System: "AFT", Does: does, Why: reason}
}

func (f *LockFacts) aftDoes(now time.Time) (does, why string) {
	switch {
	case f.Missing:
		return takes, "there is no lock file"
	case f.Problem != nil && f.Problem.Problem == record.Malformed:
		return removes, "what does not parse twice within 100 ms is removed, whoever wrote it"
	case f.Problem != nil && strings.Contains(f.Problem.Detail, "symlink"):
		return spins, "the name is taken, and what it reads is what the link points to, or nothing"
	case f.Problem != nil:
		return opened(f.Problem, "the lock")
	}
	r := f.Record
	silent := max(0, now.UnixMilli()-int64(min(r.HeartbeatAtMS, math.MaxInt64)))
	beat := ago(Age(MilliU(r.HeartbeatAtMS), now))
	switch {
	case r.Hostname != f.Host && silent > LockExpiry.Milliseconds():
		return f.aftReclaims(now, fmt.Sprintf("of another host, and no heartbeat for %s", beat))
	case r.Hostname != f.Host:
		return waits, fmt.Sprintf("of another host, heartbeat %s ago", beat)
	}
	alive, reason := aftSees(r, &f.Seen)
	if !alive {
		return f.aftReclaims(now, reason)
	}
	return waits, reason
}

// aftSees is whether it takes the process of a record of its own host for alive, and why. What it cannot read of a
// process speaks for it.
func aftSees(r *record.Lock, s *Seen) (alive bool, why string) {
	under := s.Proc.Under
	switch {
	case r.PID == 0 || r.PID > math.MaxInt32 || !under.Exists:
		return false, fmt.Sprintf("it sees no process %d here", r.PID)
	case r.ProcessStartTime == nil || !under.Readable || s.Boot == "":
		return true, fmt.Sprintf("pid %d exists", r.PID)
	case under.StartTicks != *r.ProcessStartTime:
		return false, fmt.Sprintf("pid %d is another process than the recorded one", r.PID)
	case r.BootID != nil && *r.BootID != s.Boot:
		return false, "another boot id is recorded"
	}
	return true, fmt.Sprintf("pid %d runs", r.PID)
}

// aftReclaims is what becomes of its removal of a stale lock: a token may stand in its way.
func (f *LockFacts) aftReclaims(now time.Time, because string) (does, why string) {
	t := f.Token
	switch {
	case t == nil || t.Missing || t.Record == nil && t.Problem == nil:
		return takes, because
	case t.Problem != nil && t.Problem.Problem != record.Malformed:
		does, why = opened(t.Problem, "the token")
		return does, because + ", but " + why
	case t.Problem != nil && now.Sub(t.File.ModTime) <= TokenMalformed:
		return waits, because + ", but blocked by a malformed token of under a minute"
	case t.Problem != nil:
	case t.Record.Hostname != f.Host:
		return waits, because + ", but blocked by a token of another host, which it honours for ever"
	default:
		if alive, reason := aftSees(t.Record, &t.Seen); alive {
			return waits, because + ", but blocked by a token: " + reason
		}
	}
	return takes, because + "; it clears the token first"
}
