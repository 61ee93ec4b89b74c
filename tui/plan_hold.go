package tui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// notClaimable says why the lease of a row cannot be claimed; "": it can.
func (m *model) notClaimable(r *row) string {
	e := r.entry
	switch v := e.Judge(m.now); {
	case e.Kind == watch.Lock:
		return fmt.Sprintf("C claims leases; %s is a lock. A acquires it.", r.name)
	case e.Kind != watch.Lease:
		return fmt.Sprintf("C claims leases; %s is a %s.", r.name, e.Kind)
	case m.hold(e) != nil:
		return fmt.Sprintf("This screen holds %s already. R releases it.", r.name)
	case storeOf(m.holds.store, e.Path) == nil:
		return fmt.Sprintf("C claims nothing here: the directory of %s is not known as one of leases.", r.name)
	case v.Claimable.When != verdict.Now:
		return notTakable(r.name, "claimed", v, m.now)
	default:
		return ""
	}
}

// planClaim opens the plan for a claim of the lease under the cursor, or says why there can be none.
func (m *model) planClaim() *dialog {
	r := m.current()
	if m.refused(intentClaim, r) {
		return nil
	}
	e := r.entry
	v := e.Judge(m.now)
	safe := m.paint.Safe
	d := &dialog{kind: dialogTake, title: "claim " + r.name + "?", target: targetOf(e, m.now), confirm: "claim and hold", opened: m.clock}
	d.facts = []Fact{{"now", safe(text.Word(v.State) + ". " + v.Sentence)}}
	compared := "that it is still so, once more inside its critical section"
	if id := r.who().ClaimID; id != "" {
		compared = "that it is still claim " + id + " and still so, once more inside its critical section"
	}
	d.facts = append(d.facts, Fact{"compared", safe(compared)})
	written, counter := "with the next epoch", ""
	if f, ok := e.Subject.(*verdict.LeaseFacts); ok {
		if next, refusal := f.NextEpoch(); refusal == "" {
			written = fmt.Sprintf("with epoch %d", next)
			counter = fmt.Sprintf("; %s: %d", f.Counter.Path, next)
		}
	}
	d.facts = append(d.facts,
		Fact{"written", safe(e.Path + " " + written + counter)},
		Fact{"then", "this screen holds it and renews it until R, quit or a signal releases it"})
	same := verdict.Verdict{Next: []string{verdict.Command("claim", e.ID, "--hold")}}
	d.command = safe(m.snap.Next(e, &same)[0])
	return d
}

// notAcquirable says why the lock of a row cannot be acquired; "": it can.
func (m *model) notAcquirable(r *row) string {
	e := r.entry
	switch v := e.Judge(m.now); {
	case e.Kind == watch.Lease:
		return fmt.Sprintf("A acquires locks; %s is a lease. C claims it.", r.name)
	case e.Kind != watch.Lock:
		return fmt.Sprintf("A acquires locks; %s is a %s.", r.name, e.Kind)
	case m.hold(e) != nil:
		return fmt.Sprintf("This screen holds %s already. R releases it.", r.name)
	case m.holds.locker == nil:
		return fmt.Sprintf("A acquires nothing here: %v.", errNoLocker)
	case v.Claimable.When == verdict.Now:
		return ""
	case blockingToken(e, m.now) != nil:
		return notTakable(r.name, "acquired", v, m.now) + " B removes that token."
	default:
		return notTakable(r.name, "acquired", v, m.now)
	}
}

// planAcquire opens the plan for acquiring the lock under the cursor, or says why there can be none.
func (m *model) planAcquire() *dialog {
	r := m.current()
	if m.refused(intentAcquire, r) {
		return nil
	}
	e := r.entry
	v := e.Judge(m.now)
	safe := m.paint.Safe
	d := &dialog{kind: dialogTake, title: "acquire " + r.name + "?", target: targetOf(e, m.now), confirm: "acquire and hold", opened: m.clock}
	d.facts = []Fact{{"now", safe(text.Word(v.State) + ". " + v.Sentence)}}
	if v.State == verdict.Free {
		d.facts = append(d.facts,
			Fact{"compared", "that nobody has taken it meanwhile: its name must be free"},
			Fact{"written", safe(e.Path + ", whole or not at all")})
	} else {
		d.watched = v.State == verdict.Expired
		d.facts = append(d.facts,
			Fact{"compared", safe(lockBound(e, v) + ", once more under the guard and a token")},
			Fact{"removed", safe(e.Path + ", as any contender would")},
			Fact{"written", "the same file, with this process's record"})
	}
	if d.watched {
		d.facts = append(d.facts, Fact{"first", watchedFirst})
	}
	d.facts = append(d.facts, Fact{"then", "this screen holds it and beats every 5s until R, quit or a signal releases it"})
	d.command = safe("holdfast acquire " + verdict.Quote(e.Path))
	return d
}

// watchedFirst is said of what is taken from a holder that is not proven dead.
const watchedFirst = "it is watched for 16s; one heartbeat of its holder within that time and nothing is done"

// lockBound says what of a lock must still be so.
func lockBound(e *watch.Entry, v verdict.Verdict) string {
	h := e.Holder()
	switch {
	case h == nil:
		return "that its bytes are still the same"
	case v.State == verdict.Dead:
		return fmt.Sprintf("that it is still the lock of pid %d, %s, and that process still dead", h.PID, nonceWords(h))
	case v.State == verdict.Expired:
		return fmt.Sprintf("that it is still the lock of pid %d, %s, byte for byte", h.PID, nonceWords(h))
	default:
		return fmt.Sprintf("that it is still the lock of pid %d, %s; a heartbeat is no change", h.PID, nonceWords(h))
	}
}

func nonceWords(h *verdict.Holder) string {
	if nonce := cmp.Or(h.ClaimID, h.WriterEpoch); nonce != "" {
		return "nonce " + nonce
	}
	return "which has no nonce"
}

// notTakable says in a sentence why nobody can have a lease or lock at now, and until when.
func notTakable(name, taken string, v verdict.Verdict, now time.Time) string {
	c := v.Claimable
	in := text.Long(c.At.Sub(now) + time.Second - 1)
	switch {
	case c.When == verdict.At && v.State == verdict.Unreadable:
		return fmt.Sprintf("%s cannot be read, and is honoured: free in %s at the earliest, if nothing is written.", name, in)
	case c.When == verdict.At:
		return fmt.Sprintf("%s is held: free in %s at the earliest, if nothing is renewed.", name, in)
	case c.When == verdict.Event:
		return name + " is held: free when its holder releases it or dies."
	case c.At.After(now):
		return fmt.Sprintf("%s cannot be %s for %s more: it is blocked by %s.", name, taken, in, c.By)
	default:
		return fmt.Sprintf("%s cannot be %s till somebody acts: it is blocked by %s.", name, taken, c.By)
	}
}

// notReleasable says why the hold on a row cannot be released; "": it can.
func (m *model) notReleasable(r *row) string {
	switch h := r.holder; {
	case m.hold(r.entry) != nil:
		return ""
	case h != nil:
		return fmt.Sprintf("R releases what this screen has taken; %s belongs to pid %d on %s.", r.name, h.PID, cmp.Or(h.Host, "an unknown host"))
	default:
		return "R releases what this screen has taken; this screen does not hold it."
	}
}

// planRelease opens the plan for giving up the screen's own hold on a row's entry.
func (m *model) planRelease(r *row) *dialog {
	if m.refused(intentRelease, r) {
		return nil
	}
	return m.releasePlan(r)
}

// releasePlan is the plan for giving up the hold on a row, which the screen has.
func (m *model) releasePlan(r *row) *dialog {
	e := r.entry
	own := m.hold(e)
	safe := m.paint.Safe
	t := targetOf(e, m.now)
	t.nonce = own.nonce
	d := &dialog{kind: dialogRelease, title: "release " + r.name + "?", target: t, confirm: "release", opened: m.clock}
	if e.Kind == watch.Lock {
		d.facts = []Fact{
			{"compared", safe("that it is still writer epoch " + own.nonce + " and the file that this screen made, under the guard")},
			{"removed", safe(e.Path)},
		}
		return d
	}
	d.facts = []Fact{
		{"compared", safe("that it is still claim " + own.nonce + ", inside its critical section")},
		{"removed", safe(e.Path)},
		{"stays", fmt.Sprintf("its epoch counter, at %d: the next owner gets a higher one", own.epoch)},
	}
	return d
}

// job is what a plan that was agreed to does, beside the screen.
func (m *model) job(d *dialog) func(context.Context) any {
	if d.many != nil {
		return m.manyJob(d)
	}
	plan, holds := d.target, m.holds
	switch d.kind {
	case dialogRelease:
		m.say("Releasing %s.", plan.name)
		return func(context.Context) any {
			err := holds.release(plan)
			return released{plan, err, holds.view()}
		}
	case dialogBreak:
		o := order{}
		if d.typing != nil {
			o = order{force: true, reason: d.typing.why()}
		}
		m.say("%s", breaking(plan, d.watched))
		return func(ctx context.Context) any { return broken{plan, holds.remove(ctx, plan, o)} }
	case dialogSweep:
		s := d.sweep
		m.say("Sweeping %s.", sweepCount(s.removed))
		return func(ctx context.Context) any { return holds.sweep(ctx, s) }
	case dialogTake, dialogQuit:
	}
	verb := "Claiming"
	if plan.ref.kind == watch.Lock {
		verb = "Acquiring"
	}
	if d.watched {
		m.say("%s %s: watched for 16s first.", verb, plan.name)
	} else {
		m.say("%s %s.", verb, plan.name)
	}
	return func(ctx context.Context) any {
		held, err := holds.take(ctx, plan)
		return taken{plan, held, err, holds.view()}
	}
}

func (m *model) takeDone(t taken) {
	m.holding(t.now)
	if t.err == nil {
		// An earlier loss of the same would contradict what is held now.
		m.losses = slices.DeleteFunc(m.losses, func(l loss) bool { return l.ref == t.plan.ref && l.nonce != t.held.nonce })
	}
	lock := t.plan.ref.kind == watch.Lock
	switch {
	case t.err != nil && lock:
		m.complain("Not acquired: %s: %v", t.plan.name, causeFirst(t.err))
	case t.err != nil:
		m.complain("Not claimed: %s: %v", t.plan.name, causeFirst(t.err))
	case !slices.Contains(m.held, t.held):
		// lost since then, which is told
	case lock:
		m.say("Acquired %s. This screen beats for it until R or quit.", t.plan.name)
	default:
		m.say("Claimed %s with epoch %d. This screen renews it until R or quit.", t.plan.name, t.held.epoch)
	}
}

func (m *model) releaseDone(r released) {
	m.holding(r.now)
	if r.err != nil {
		m.complain("Release of %s: %v", r.plan.name, causeFirst(r.err))
		return
	}
	m.say("Released %s.", r.plan.name)
}
