package tui

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// blockingToken returns the token that stands in the way of removing the lock; nil: none does.
func blockingToken(e *watch.Entry, now time.Time) *verdict.TokenFacts {
	if f, ok := e.Subject.(*verdict.LockFacts); ok && f.Token != nil && f.Token.Blocks(now) {
		return f.Token
	}
	return nil
}

// toBreak is what B removes for a row, itself or the token that blocks it, or why it can remove nothing.
func (m *model) toBreak(r *row) (e *watch.Entry, why string) {
	e = r.entry
	if m.hold(e) != nil {
		return nil, fmt.Sprintf("This screen holds %s itself. R releases it.", r.name)
	}
	if token := blockingToken(e, m.now); token != nil {
		if e = m.find(ref{watch.Token, token.Path}); e == nil {
			return nil, fmt.Sprintf("The token that blocks %s is not in sight any more: look again.", r.name)
		}
		if !e.Unseen.IsZero() {
			return nil, fmt.Sprintf("The token that blocks %s cannot be looked at any more: nothing is changed unseen.", r.name)
		}
	}
	if why = m.notBreakable(e, e.Judge(m.now)); why != "" {
		return nil, m.paint.Safe(e.Title()) + " " + why
	}
	return e, ""
}

// planBreak opens the plan for removing a row's entry from its holder, or the token that blocks it; or it says why there
// can be none.
func (m *model) planBreak(r *row) *dialog {
	if m.refused(intentBreak, r) {
		return nil
	}
	e, _ := m.toBreak(r)
	return m.breakPlan(r, e)
}

// breakPlan is the plan for removing e, which is what B means for the row.
func (m *model) breakPlan(r *row, e *watch.Entry) *dialog {
	v := e.Judge(m.now)
	if e.Kind == watch.Token {
		return m.planToken(r, e, v)
	}
	return m.planTaking(r, e, v)
}

// notBreakable says why nothing is there that could be removed by B; "": it can be.
func (m *model) notBreakable(e *watch.Entry, v verdict.Verdict) string {
	seen := e.Seen()
	switch {
	case e.Kind == watch.Temp:
		return "is a temp file, which holds nothing. W in the litter view (4) sweeps temps."
	case e.Kind == watch.Lease && storeOf(m.holds.store, e.Path) == nil:
		return "cannot be broken here: its directory is not known as one of leases."
	case e.Kind != watch.Lease && m.holds.locker == nil:
		return "cannot be broken here: " + errNoLocker.Error() + "."
	case seen == nil || seen.Missing:
		s := "is free: there is nothing to break."
		if v.Flags.Has(verdict.IsBlocked) {
			s += " What blocks it is " + v.Claimable.By + "."
		}
		return s
	case stuckInside(e):
		return "cannot be broken: it is blocked by " + v.Claimable.By + "."
	case seen.Problem == nil:
		return ""
	case seen.Problem.Problem == record.NotRegular:
		return "cannot be broken: " + seen.Problem.Detail + " is in its place, and nothing touches that. Look at it, and remove it by hand."
	case e.Raw == nil:
		return "cannot be broken: its bytes could not be read (" + seen.Problem.Detail + "), so nothing could be compared. Look at it, and remove it by hand."
	default:
		return ""
	}
}

// stuckInside reports whether nobody gets into the critical section of a lease.
func stuckInside(e *watch.Entry) bool {
	f, ok := e.Subject.(*verdict.LeaseFacts)
	return ok && (f.BadID != "" || f.Section != nil || slices.ContainsFunc(f.Inside, func(h proc.FlockHolder) bool { return h.Stopped }))
}

// anyoneTakes reports whether the next claimant or contender would take it, or the next attempt clear it: to remove it
// then takes nothing from anybody.
func anyoneTakes(e *watch.Entry, v verdict.Verdict, now time.Time) bool {
	if f, ok := e.Subject.(*verdict.TokenFacts); ok {
		return !f.Blocks(now)
	}
	return v.Claimable.When == verdict.Now
}

// removal is the part of a plan that is the same for all that B removes.
func (m *model) removal(e *watch.Entry, v verdict.Verdict, title, confirm string) *dialog {
	d := &dialog{kind: dialogBreak, title: title, target: targetOf(e, m.now), confirm: confirm, opened: m.clock}
	if !anyoneTakes(e, v, m.now) {
		want := m.paint.Safe(m.typedName(e))
		d.typing = newTyping(want)
		if want != m.paint.Safe(shortName(e)) {
			d.facts = []Fact{{"type", want}} // too long for the line that asks for it, perhaps
		}
	}
	return d
}

// planTaking is the plan for breaking a lease or a lock.
func (m *model) planTaking(r *row, e *watch.Entry, v verdict.Verdict) *dialog {
	safe := m.paint.Safe
	d := m.removal(e, v, "break "+r.name+"?", "break it")
	fact := func(head, says string) { d.facts = append(d.facts, Fact{head, safe(says)}) }
	fact("now", text.Word(v.State)+". "+v.Sentence)
	fact("harms", m.harm(e, v))
	bound, undo := lockBound(e, v)+", once more under the guard and a token", "only while its holder is not alive and the name is free"
	if e.Kind == watch.Lease {
		bound = "that its bytes are still the same"
		if h := e.Holder(); h != nil {
			bound = fmt.Sprintf("that it is still the lease of pid %d, %s", h.PID, nonceWords(h))
		}
		bound += ", once more inside its critical section"
		undo = "only while its counter is still the same"
	}
	fact("compared", bound)
	fact("removed", e.Path)
	if f, ok := e.Subject.(*verdict.LeaseFacts); ok {
		if next, refusal := f.NextEpoch(); refusal == "" {
			fact("stays", fmt.Sprintf("its epoch counter: the next owner gets %d", next))
		}
	}
	if d.watched = e.Kind == watch.Lock && v.State == verdict.Expired; d.watched {
		fact("first", watchedFirst)
	}
	fact("log", m.auditWords())
	command := "holdfast break " + verdict.Quote(e.Path)
	fact("undo", "`holdfast break --undo` of the same path puts it back, "+undo)
	command += " --expect " + verdict.Quote(expectation(e))
	if d.typing == nil {
		command += " --yes"
	}
	d.command = safe(command)
	return d
}

// planToken is the plan for removing a token: the one under the cursor, or the one that blocks the lock there.
func (m *model) planToken(r *row, e *watch.Entry, v verdict.Verdict) *dialog {
	safe := m.paint.Safe
	of := safe(shortName(e))
	title := "remove the token " + of + "?"
	if e != r.entry {
		title = "remove the token that blocks " + r.name + "?"
	}
	d := m.removal(e, v, title, "remove the token")
	fact := func(head, says string) { d.facts = append(d.facts, Fact{head, safe(says)}) }
	fact("now", v.Sentence)
	harm := "nobody: the next attempt would clear it"
	if d.typing != nil {
		harm = "if its maker still runs, it may remove a lock that somebody else has taken meanwhile"
	}
	fact("harms", harm)
	bound := "that its bytes are still the same"
	if h := e.Holder(); h != nil {
		bound = fmt.Sprintf("that it is still the token of pid %d on %s, %s", h.PID, cmp.Or(h.Host, "an unknown host"), nonceWords(h))
	}
	fact("compared", bound+", once more under the guard")
	fact("removed", e.Path)
	if e.LockOf != "" {
		fact("stays", "the lock "+e.LockOf)
	}
	fact("log", m.auditWords())
	command := "holdfast break " + verdict.Quote(e.Path) + " --expect " + verdict.Quote(expectation(e))
	if d.typing == nil {
		command += " --yes"
	}
	d.command = safe(command)
	return d
}

// expectation is what the command line calls the record by: its nonce, or the hash of its bytes.
func expectation(e *watch.Entry) string {
	if h := e.Holder(); h != nil {
		if nonce := cmp.Or(h.ClaimID, h.WriterEpoch); nonce != "" {
			return nonce
		}
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(e.Raw))
}

// auditWords say where a removal is told, before it is done.
func (m *model) auditWords() string {
	path, err := m.holds.log.File()
	if err != nil {
		return "nothing is done without the audit log, and there is none: " + err.Error()
	}
	return "who, why and its bytes go to " + m.short(path) + " first"
}

// harm says whom it hurts that a lease or lock is taken from its holder.
func (m *model) harm(e *watch.Entry, v verdict.Verdict) string {
	h := e.Holder()
	switch {
	case h == nil:
		return "whoever is writing it, which cannot be seen"
	case v.State == verdict.Dead:
		return "nobody: its holder is gone"
	case e.Kind == watch.Lease:
		return m.leaseHarm(e, h, v)
	}
	who := fmt.Sprintf("pid %d", e.PID())
	if h.Host != "" && e.Seen().Proc.Answer != proc.Alive {
		who += " on " + h.Host
	}
	const risk = "; meanwhile another may have the lock"
	if v.State == verdict.Expired {
		return "nobody, if " + who + " is gone; if not, it goes on writing until it notices"
	}
	if v.State == verdict.Stopped {
		return who + " goes on writing when it continues, until it notices at its next heartbeat" + risk
	}
	return who + " goes on writing until it notices at its next heartbeat, within 5s" + risk
}

// leaseHarm says whose agent ends with a lease, and what else its process has.
func (m *model) leaseHarm(e *watch.Entry, h *verdict.Holder, v verdict.Verdict) string {
	others := 0
	for _, other := range m.fresh.Entries {
		if oh := other.Holder(); other.Kind == watch.Lease && oh != nil && other.PID() == e.PID() && strings.EqualFold(oh.Host, h.Host) {
			others++
		}
	}
	server := "is the AgentMux server"
	if h.Channel == "holdfast" {
		server = "is a holdfast that claimed it"
	}
	ends := "within 5s"
	switch v.State {
	case verdict.Live, verdict.Late: // it is seen to run
	case verdict.Stopped:
		ends += " of its going on"
	default:
		ends += ", if it runs"
	}
	return fmt.Sprintf("this ends the agent %s %s; pid %d %s and holds %s", e.Place(), ends, e.PID(), server, text.Count(others, "lease"))
}

// breaking says what is under way.
func breaking(plan target, watched bool) string {
	switch {
	case watched:
		return "Breaking " + plan.name + ": watched for 16s first."
	case plan.ref.kind == watch.Token:
		return "Removing the token " + plan.name + "."
	default:
		return "Breaking " + plan.name + "."
	}
}

func (m *model) breakDone(b broken) {
	name, token := b.plan.name, b.plan.ref.kind == watch.Token
	switch {
	case b.err != nil && token:
		m.complain("Token not removed: %s: %v", name, causeFirst(b.err))
	case b.err != nil:
		m.complain("Not broken: %s: %v", name, causeFirst(b.err))
	case token:
		m.say("Removed the token %s.", name)
	default:
		m.say("Broke %s. `holdfast break %s --undo` puts it back.", name, verdict.Quote(b.plan.ref.path))
	}
}
