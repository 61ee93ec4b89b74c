package verdict

import (
	"fmt"
	"slices"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// Judge says what is so with the lease at now, by the first line of the table that matches.
func (f *LeaseFacts) Judge(now time.Time) Verdict {
	v := f.decide(now)
	if f.Record == nil && f.Problem == nil && !f.Missing {
		return v
	}
	next, refusal := f.refusal()
	v.Evidence = f.evidence(now, f.Expires(), next, refusal)
	v.Originals = []Original{f.agentMux(now)}
	v.Next = append(v.Next, f.nextCommands(v)...)
	return v
}

// Glance is Judge without Evidence, Originals and Next, which are most of it and are read of one entry at a time: for
// whoever keeps many.
func (f *LeaseFacts) Glance(now time.Time) Verdict {
	v := f.decide(now)
	v.Next = nil
	return v
}

// decide is Judge without Evidence and Originals, and with the first of Next only.
func (f *LeaseFacts) decide(now time.Time) Verdict {
	if f.Record == nil && f.Problem == nil && !f.Missing {
		return notLookedAt()
	}
	var v Verdict
	_, refusal := f.refusal()
	follows := "" // what a claim does now, if nothing stands against it
	expires := f.Expires()
	age := Age(f.Beat, now)
	expired := now.After(expires)
	stopped := f.Proc.Condition != proc.Running

	switch {
	case f.Problem != nil:
		v.State, v.Cause = Unreadable, string(f.Problem.Problem)
		f.judgeUnreadable(&v, now, expires)
	case f.Missing:
		v.State = Free
		v.Claimable.When = Now
		v.Sentence = "Nobody holds it." + f.lastEpoch()
		follows = "If something still says \"running elsewhere\", the cause is not in this directory."
	case f.Proc.Answer == proc.Dead:
		v.State, v.Cause = Dead, string(f.Proc.Cause)
		v.Claimable.When = Now
		v.Sentence = deathSentence(f.Proc, f.Record.PID)
		follows = "The next claimant takes it: nothing to do."
	case expired:
		v.State = Expired
		v.Claimable.When = Now
		v.Sentence = fmt.Sprintf("Ran out %s ago.", ago(now.Sub(expires)))
		follows = "The next claimant takes it; " + f.turnGoesOn() + "."
		if f.proven() && stopped {
			v.Flags |= StoppedFlag
			v.Next = append(v.Next, contCommand(f.Proc.PID))
		}
	case f.proven() && stopped:
		v.State = Stopped
		v.Sentence = fmt.Sprintf("%s is %s; the lease runs out in %s.%s", f.who(), conditionWord(f.Proc.Condition),
			left(expires, now), contHint(f.Proc))
		v.Next = append(v.Next, contNext(f.Proc)...)
	case f.proven() && age > f.lateAfter():
		v.State = Late
		v.Sentence = fmt.Sprintf("Renewal is %s overdue; free in %s if it does not come.", ago(max(0, age-f.Interval)), left(expires, now))
	case f.proven():
		v.State = Live
		// Said of nearly all: Sprintf would take as long as all else here.
		v.Sentence = "Held. " + f.who() + " runs and renewed " + ago(age) + " ago; free when it releases, dies, or stops renewing (" +
			ago(f.TTL) + ")."
	case f.Proc.Machine == proc.Elsewhere:
		v.State = Remote
		v.Sentence = fmt.Sprintf("Held on %s; its process cannot be checked from here. Renewed %s ago; free in %s if not renewed.",
			hostName(f.Record.Hostname), ago(age), left(expires, now))
	default:
		v.State = Unknown
		v.Sentence = fmt.Sprintf("Cannot tell from here whether pid %d lives (%s). Free in %s if not renewed.",
			f.Record.PID, why(f.Proc), left(expires, now))
	}

	switch v.State {
	case Free, Dead, Expired:
		if refusal != "" {
			f.block(&v, refusal)
		}
	case Unreadable:
	default:
		v.Claimable = Claimable{When: At, At: expires}
	}
	f.judgeSection(&v)
	if follows != "" && v.Claimable.When != Blocked {
		v.Sentence += " " + follows
	}
	f.flags(&v, now)
	v.Changes = f.changes(v, expires)
	return v
}

// lateAfter is one and a half intervals: 7.5 s.
func (f *LeaseFacts) lateAfter() time.Duration { return f.Interval + f.Interval/2 }

func (f *LeaseFacts) judgeUnreadable(v *Verdict, now, expires time.Time) {
	_, refusal := f.refusal()
	what := unreadableSentence(f.Problem)
	switch {
	case f.Problem.Problem != record.Malformed:
		v.Claimable = Claimable{When: Blocked, By: inPlace(f.Problem)}
		v.Sentence = what + " Nothing touches it; a person must act."
	case refusal != "":
		v.Sentence = what
		f.block(v, refusal)
	case now.After(expires):
		v.Claimable.When = Now
		v.Sentence = fmt.Sprintf("%s Nobody rewrote it for %s: the next claimant takes it.", what, ago(f.TTL))
	default:
		v.Claimable = Claimable{When: At, At: expires}
		v.Sentence = fmt.Sprintf("%s Honoured for %s more, then claimable.", what, left(expires, now))
	}
}

// judgeSection blocks whatever a claim would find blocked: a flock file that cannot be one, or a stopped
// process inside the critical section, behind which every call waits.
func (f *LeaseFacts) judgeSection(v *Verdict) {
	switch {
	case f.Section != nil:
		v.Claimable = Claimable{When: Blocked, By: "its flock file: " + f.Section.Detail}
		v.Sentence += fmt.Sprintf(" Nothing can be claimed: its flock file %s is %s.", f.Section.Path, f.Section.Detail)
	default:
		p, ok := f.stoppedInside()
		if !ok {
			return
		}
		v.Claimable = Claimable{When: Blocked, By: fmt.Sprintf("pid %d (%s), stopped inside its critical section", p.PID, p.Name)}
		v.Sentence += fmt.Sprintf(" Every claim waits: pid %d (%s) is stopped inside its critical section.", p.PID, p.Name)
		v.Next = append(v.Next, contCommand(p.PID))
	}
}

// refusal is the next epoch, or why a claim is refused although nobody holds the lease.
func (f *LeaseFacts) refusal() (next uint64, refusal string) {
	next, refusal = f.NextEpoch()
	if f.BadID != "" {
		refusal = "its id, for which no claim is granted here (" + f.BadID + ")"
	}
	return next, refusal
}

func (f *LeaseFacts) block(v *Verdict, refusal string) {
	v.Claimable = Claimable{When: Blocked, By: refusal}
	v.Sentence += " No claim is granted, because of " + refusal + "."
	if f.BadID == "" {
		v.Next = append(v.Next, epochCommand(f.ID))
	}
}

// stoppedInside returns a process that holds the critical section and cannot leave it by itself.
func (f *LeaseFacts) stoppedInside() (proc.FlockHolder, bool) {
	i := slices.IndexFunc(f.Inside, func(h proc.FlockHolder) bool { return h.Stopped })
	if i < 0 {
		return proc.FlockHolder{}, false
	}
	return f.Inside[i], true
}

func (f *LeaseFacts) flags(v *Verdict, now time.Time) {
	if v.Claimable.When == Blocked {
		v.Flags |= IsBlocked
		v.Stuck = true
	}
	if f.Counter.Problem != nil ||
		f.Record != nil && !f.Counter.Missing && f.Counter.Value < f.Record.Epoch {
		v.Flags |= EpochFlag
	}
	if r := f.Record; r != nil {
		if f.Self {
			v.Flags |= Mine
		}
		if f.proven() && f.Proc.Legacy {
			v.Flags |= Legacy
		}
		ahead := !f.proven() && !f.Booted && f.File.ModTime.Sub(now) > clockSlack
		if f.Proc.ClockStep || ahead || wrongClock(now, Milli(r.AcquiredAtMS), Milli(r.RenewedAtMS)) != "" {
			v.Flags |= Clock
		}
	}
}

// changes is the first moment at which time alone has turned v into another verdict: a limit must be exceeded.
func (f *LeaseFacts) changes(v Verdict, expires time.Time) time.Time {
	limit := expires
	switch v.State {
	case Free, Dead, Expired:
		return time.Time{}
	case Unreadable:
		if v.Claimable.When != At {
			return time.Time{}
		}
	case Live:
		if late := f.Beat.Add(f.lateAfter()); late.Before(limit) {
			limit = late
		}
	default:
	}
	return limit.Add(1)
}

func (f *LeaseFacts) evidence(now, expires time.Time, next uint64, refusal string) []proc.Check {
	checks := seenChecks(&f.Seen, now)
	if r := f.Record; r != nil {
		renewal := proc.Check{Name: "renewal"}
		renewal.Saw = fmt.Sprintf("renewed %s ago, runs out after %s", ago(Age(f.Beat, now)), ago(f.TTL))
		if f.Booted {
			renewal.Saw += ", by the boot-time clock"
		} else if f.Proc.Answer == proc.Unknown {
			renewal.Saw += fmt.Sprintf(", file written %s ago; both count", ago(Age(f.File.ModTime, now)))
		}
		if !now.After(expires) && f.Proc.Answer != proc.Dead {
			renewal.Speaks = proc.ForAlive
		}
		checks = append(checks, renewal)
		if bad := wrongClock(now, Milli(r.AcquiredAtMS), Milli(r.RenewedAtMS)); bad != "" {
			checks = append(checks, proc.Check{Name: "clock", Saw: bad})
		}
		if r.InstanceID != f.ID {
			checks = append(checks, proc.Check{Name: "instance id", Saw: fmt.Sprintf("the record says %q, the file name %q, which counts", r.InstanceID, f.ID)})
		}
	}
	counter := proc.Check{Name: "epoch counter"}
	switch c := f.Counter; {
	case c.Problem != nil:
		counter.Saw = "damaged: " + c.Problem.Detail
	case c.Missing:
		counter.Saw = "missing"
	default:
		counter.Saw = fmt.Sprintf("%d", c.Value)
	}
	if f.Record != nil && f.Record.Epoch > 0 {
		counter.Saw += fmt.Sprintf("; the record's epoch is %d", f.Record.Epoch)
	}
	if refusal != "" {
		counter.Saw += "; no claim is granted"
	} else {
		counter.Saw += fmt.Sprintf("; the next owner gets %d", next)
	}
	checks = append(checks, counter)
	for _, p := range f.Inside {
		how := "is inside it; a claim waits"
		if p.Stopped {
			how = "is stopped inside it"
		}
		checks = append(checks, proc.Check{Name: "critical section", Saw: fmt.Sprintf("pid %d (%s) %s", p.PID, p.Name, how)})
	}
	if f.Section != nil {
		checks = append(checks, proc.Check{Name: "critical section", Saw: "its flock file is " + f.Section.Detail})
	}
	return checks
}

func (f *LeaseFacts) nextCommands(v Verdict) []string {
	if v.Claimable.When == Now {
		return []string{Command("claim", f.ID, "--hold")}
	}
	return []string{Command("why", f.ID)}
}

// turnGoesOn warns that an expired lease says nothing about the turn that was driven under it.
func (f *LeaseFacts) turnGoesOn() string {
	switch {
	case f.proven() && f.Proc.Condition != proc.Running:
		return fmt.Sprintf("pid %d still exists, %s: a turn may go on when it continues", f.Proc.PID, conditionWord(f.Proc.Condition))
	case f.proven():
		return fmt.Sprintf("pid %d still runs, so a turn may still be going on", f.Proc.PID)
	default:
		return fmt.Sprintf("whether pid %d still runs cannot be told from here (%s)", f.Record.PID, why(f.Proc))
	}
}

func (f *LeaseFacts) lastEpoch() string {
	switch {
	case f.Counter.Problem != nil, f.Counter.Missing:
		return ""
	default:
		return fmt.Sprintf(" Last epoch %d.", f.Counter.Value)
	}
}

// who names the holder as it is seen from here: under its recorded pid, or under another one.
func (f *LeaseFacts) who() string {
	if f.Record == nil {
		return ""
	}
	return holderName(f.Record.PID, f.Proc)
}

func epochCommand(id string) string { return Command("epoch", id) }
