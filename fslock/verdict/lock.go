package verdict

import (
	"fmt"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// Judge says what is so with the lock at now, by the first line of the table that matches.
func (f *LockFacts) Judge(now time.Time) Verdict {
	v := f.Glance(now)
	if f.Record == nil && f.Problem == nil && !f.Missing {
		return v
	}
	v.Evidence = f.evidence(now)
	v.Originals = []Original{f.aft(now)}
	if v.State == Stopped {
		v.Next = append(v.Next, contNext(f.Proc)...)
	}
	if v.Claimable.When == Blocked {
		v.Next = append(v.Next, f.Token.next()...)
	}
	v.Next = append(v.Next, "holdfast why "+Quote(f.Path))
	return v
}

// Glance is Judge without Evidence, Originals and Next, which are most of it and are read of one entry at a time: for
// whoever keeps many, or asks ten times a second.
func (f *LockFacts) Glance(now time.Time) Verdict {
	if f.Record == nil && f.Problem == nil && !f.Missing {
		return notLookedAt()
	}
	var v Verdict
	expires := f.Expires()
	age := Age(f.Beat, now)
	stopped := f.Proc.Condition != proc.Running
	proven := f.proven()

	switch {
	case f.Problem != nil:
		v.State, v.Cause = Unreadable, string(f.Problem.Problem)
		f.judgeUnreadable(&v, now, expires)
	case f.Missing:
		v.State = Free
		v.Claimable.When = Now
		v.Sentence = "Nobody holds it."
	case f.Proc.Answer == proc.Dead:
		v.State, v.Cause = Dead, string(f.Proc.Cause)
		v.Claimable.When = Now
		v.Sentence = deathSentence(f.Proc, f.Record.PID)
		f.judgeTaking(&v, now, "The next attempt takes it: nothing to do.")
	case !proven && now.After(expires):
		v.State = Expired
		v.Claimable.When = Now
		v.Sentence = fmt.Sprintf("No heartbeat from %s for %s (limit %s).", f.from(), ago(Age(expires.Add(-LockExpiry), now)), ago(LockExpiry))
		f.judgeTaking(&v, now, "The next contender takes it.")
	case proven && stopped:
		v.State = Stopped
		v.Stuck = true
		v.Sentence = fmt.Sprintf("%s is %s; the lock stays its own until it goes on or dies.%s",
			f.who(), conditionWord(f.Proc.Condition), contHint(f.Proc))
	case proven && age > LockLate:
		v.State = Late
		v.Sentence = fmt.Sprintf("No heartbeat for %s, but %s runs: the lock stays its own.", ago(age), f.who())
		if f.Proc.Legacy {
			v.Sentence += fmt.Sprintf(" It is known by its pid alone%s, so it cannot be proved dead.", f.occupant())
		}
	case proven:
		v.State = Live
		// Said of nearly all: Sprintf would take as long as all else here.
		v.Sentence = "Held. " + f.who() + " runs, heartbeat " + ago(age) + " ago; free when it releases or dies."
	case f.Proc.Machine == proc.Elsewhere:
		v.State = Remote
		v.Sentence = fmt.Sprintf("Held on %s; its process cannot be checked from here. Heartbeat %s ago; the next contender may take it in %s if it stays still.",
			hostName(f.Record.Hostname), ago(age), left(expires, now))
	default:
		v.State = Unknown
		v.Sentence = fmt.Sprintf("Cannot tell from here whether pid %d lives (%s). The next contender may take it in %s if its heartbeat stays still.",
			f.Record.PID, why(f.Proc), left(expires, now))
	}

	switch v.State {
	case Stopped, Late, Live:
		v.Claimable.When = Event
		if t := f.Token; t != nil && t.Blocks(now) {
			v.Sentence += " Should its holder die, a token blocks whoever comes next: " + t.sentence(now) + "."
		}
	case Remote, Unknown:
		v.Claimable = Claimable{When: At, At: expires}
		v.Sentence += f.blockedThen(now, expires)
	default:
	}
	f.flags(&v, now)
	v.Changes = f.changes(v, now, expires)
	return v
}

func (f *LockFacts) judgeUnreadable(v *Verdict, now, expires time.Time) {
	what := unreadableSentence(f.Problem)
	switch {
	case f.Problem.Problem != record.Malformed:
		v.Claimable = Claimable{When: Blocked, By: inPlace(f.Problem)}
		v.Sentence = what + " Nothing touches it; a person must act."
	case !f.Problem.Torn:
		v.Claimable = Claimable{When: Blocked, By: "a file in its place that is no record"}
		v.Sentence = what + " It counts as held: a person must look at it."
	case len(f.Writers) > 0:
		v.Claimable = Claimable{When: Blocked, By: fmt.Sprintf("pid %d, which has it open for writing or flocked", f.Writers[0])}
		v.Sentence = fmt.Sprintf("%s pid %d has it open for writing or flocked, so it is honoured.", what, f.Writers[0])
	case now.After(expires):
		v.Claimable.When = Now
		v.Sentence = what
		f.judgeTaking(v, now, fmt.Sprintf("Unchanged for over %s: the next attempt takes it.", ago(TornAfter)))
	default:
		v.Claimable = Claimable{When: At, At: expires}
		v.Sentence = fmt.Sprintf("%s Honoured for %s more", what, left(expires, now))
		if then := f.blockedThen(now, expires); then != "" {
			v.Sentence += "." + then
			return
		}
		v.Sentence += ", then the next attempt takes it."
	}
}

// blockedThen says whether a token will stand in the way when the lock can be taken at last.
func (f *LockFacts) blockedThen(now, then time.Time) string {
	if f.Token == nil || !f.Token.Blocks(then) {
		return ""
	}
	return " A token will then block it: " + f.Token.sentence(now) + "."
}

// judgeTaking adds what follows for whoever would take the lock: a token may block it.
func (f *LockFacts) judgeTaking(v *Verdict, now time.Time, free string) {
	t := f.Token
	if t == nil || !t.Blocks(now) {
		if t != nil {
			free += " It clears a token that is left over, too."
		}
		v.Sentence += " " + free
		return
	}
	tok := t.Token(now)
	v.Claimable = Claimable{When: Blocked, By: t.name(), At: tok.Clears}
	v.Sentence += " The next attempt would take it, but a token blocks it: " + t.sentence(now) + "."
}

func (f *LockFacts) flags(v *Verdict, now time.Time) {
	if v.Claimable.When == Blocked {
		v.Flags |= IsBlocked
		v.Stuck = true
	}
	r := f.Record
	if r == nil {
		return
	}
	created, beat := MilliU(r.CreatedAtMS), MilliU(r.HeartbeatAtMS)
	if f.Self {
		v.Flags |= Mine
	}
	if f.proven() && f.Proc.Legacy {
		v.Flags |= Legacy
	}
	if f.Proc.ClockStep || wrongClock(now, created, beat) != "" || f.apart() {
		v.Flags |= Clock
	}
	switch v.State {
	case Live, Late, Stopped:
		if Age(created, now) > LongHeldAfter {
			v.Flags |= LongHeld
		}
	default:
	}
}

// apart reports whether the stamps of a holder that is judged by them alone contradict each other.
func (f *LockFacts) apart() bool {
	if f.proven() || f.Proc.Answer == proc.Dead {
		return false
	}
	return f.File.ModTime.Sub(MilliU(f.Record.HeartbeatAtMS)).Abs() > time.Minute
}

// changes is the first moment at which time alone has turned v into another verdict: a limit must be exceeded.
func (f *LockFacts) changes(v Verdict, now, expires time.Time) time.Time {
	var next time.Time
	limit := func(t time.Time) {
		if t = t.Add(1); t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch v.State {
	case Live:
		limit(f.Beat.Add(LockLate))
	case Remote, Unknown:
		limit(expires)
	case Unreadable:
		if v.Claimable.When == At {
			limit(expires)
		}
	default:
	}
	switch v.State {
	case Live, Late, Stopped:
		limit(MilliU(f.Record.CreatedAtMS).Add(LongHeldAfter))
	default:
	}
	if v.Claimable.When == Blocked && !v.Claimable.At.IsZero() {
		limit(v.Claimable.At)
	}
	return next
}

func (f *LockFacts) evidence(now time.Time) []proc.Check {
	checks := seenChecks(&f.Seen, now)
	if r := f.Record; r != nil {
		beat := proc.Check{Name: "heartbeat", Saw: ago(Age(f.Beat, now)) + " ago"}
		if f.Booted {
			beat.Saw += ", by the boot-time clock"
		}
		if f.Proc.Answer == proc.Unknown {
			beat.Saw += fmt.Sprintf(", file written %s ago; both count, the limit is %s", ago(Age(f.File.ModTime, now)), ago(LockExpiry))
		}
		if !now.After(f.Expires()) && f.Proc.Answer != proc.Dead {
			beat.Speaks = proc.ForAlive
		}
		checks = append(checks, beat, proc.Check{Name: "held", Saw: "for " + ago(Age(MilliU(r.CreatedAtMS), now))})
		if bad := wrongClock(now, MilliU(r.CreatedAtMS), MilliU(r.HeartbeatAtMS)); bad != "" {
			checks = append(checks, proc.Check{Name: "clock", Saw: bad})
		} else if f.apart() {
			checks = append(checks, proc.Check{Name: "clock", Saw: "its heartbeat and the file's time are over a minute apart"})
		}
	}
	for _, pid := range f.Writers {
		checks = append(checks, proc.Check{Name: "writer", Saw: fmt.Sprintf("pid %d has it open for writing or flocked", pid), Speaks: proc.ForAlive})
	}
	token := proc.Check{Name: "token", Saw: "none"}
	if f.Token != nil {
		token.Saw = f.Token.sentence(now)
	}
	return append(checks, token)
}

func (f *LockFacts) who() string { return holderName(f.Record.PID, f.Proc) }

// from names where a heartbeat would come from.
func (f *LockFacts) from() string {
	if f.Proc.Machine == proc.Elsewhere {
		return hostName(f.Record.Hostname)
	}
	return fmt.Sprintf("pid %d (%s)", f.Record.PID, why(f.Proc))
}

func (f *LockFacts) occupant() string {
	if f.Proc.Occupant.Name == "" {
		return ""
	}
	return " (" + f.Proc.Occupant.Name + ")"
}
