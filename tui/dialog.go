package tui

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// dialogDeaf is how long a dialog ignores keys after it opened: what was typed before it could be read was not
// meant for it.
const dialogDeaf = 400 * time.Millisecond

type dialogKind uint8

const (
	dialogClaim dialogKind = iota
	dialogRelease
	dialogQuit
)

// dialog is an open question. What it is about is fixed when it opens.
type dialog struct {
	kind    dialogKind
	title   string // safe
	target  target
	facts   []Fact // safe
	command string // the same as a command, safe; "": none does the same while the screen lives
	confirm string // what y does, one or two words
	opened  time.Time
	changed string // why it cannot be confirmed any more; "": it can
	top     int    // the first line that is shown
}

// planClaim opens the plan for a claim of the lease under the cursor, or says why there can be none.
func (m *model) planClaim() *dialog {
	r := m.current()
	if r == nil || !m.mayAct("C claims") {
		return nil
	}
	e := r.entry
	if e.Kind != watch.Lease {
		m.complain("C claims leases; %s is a %s.", r.name, e.Kind)
		return nil
	}
	if m.hold(e) != nil {
		m.complain("This screen holds %s already. R releases it.", r.name)
		return nil
	}
	if storeOf(m.stores, e.Path) == nil {
		m.complain("C claims nothing here: the directory of %s is not known as one of leases.", r.name)
		return nil
	}
	v := r.entry.Judge(m.now)
	if v.Claimable.When != verdict.Now {
		m.complain("%s", notClaimable(r.name, v, m.now))
		return nil
	}
	safe := m.paint.Safe
	d := &dialog{kind: dialogClaim, title: "claim " + r.name + "?", target: targetOf(e, m.now), confirm: "claim and hold", opened: m.clock}
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
	same := verdict.Verdict{Next: []string{"holdfast claim " + verdict.Quote(e.ID) + " --hold"}}
	d.command = safe(m.snap.Next(e, &same)[0])
	return d
}

// notClaimable says in a sentence why nobody can claim a lease at now, and until when.
func notClaimable(name string, v verdict.Verdict, now time.Time) string {
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
		return fmt.Sprintf("%s cannot be claimed for %s more: it is blocked by %s.", name, in, c.By)
	default:
		return fmt.Sprintf("%s cannot be claimed till somebody acts: it is blocked by %s.", name, c.By)
	}
}

// planRelease opens the plan for giving up the screen's own hold under the cursor.
func (m *model) planRelease() *dialog {
	r := m.current()
	if r == nil || !m.mayAct("R releases") {
		return nil
	}
	e := r.entry
	own := m.hold(e)
	if own == nil {
		why := "this screen does not hold it"
		if h := r.holder; h != nil {
			why = fmt.Sprintf("%s belongs to pid %d on %s", r.name, h.PID, h.Host)
		}
		m.complain("R releases what this screen has claimed; %s.", why)
		return nil
	}
	safe := m.paint.Safe
	t := targetOf(e, m.now)
	t.claimID = own.claimID
	return &dialog{
		kind: dialogRelease, title: "release " + r.name + "?", target: t, confirm: "release", opened: m.clock,
		facts: []Fact{
			{"compared", safe("that it is still claim " + own.claimID + ", inside its critical section")},
			{"removed", safe(e.Path)},
			{"stays", fmt.Sprintf("its epoch counter, at %d: the next owner gets a higher one", own.epoch)},
		},
	}
}

// askQuit is the question before what is held is given up.
func (m *model) askQuit() *dialog {
	return &dialog{kind: dialogQuit, title: "quit?", opened: m.clock}
}

// quitQuestion is the question in full, for as many leases as are held now.
func (m *model) quitQuestion() string {
	return fmt.Sprintf("You hold %s.  enter release and quit   esc stay", text.Count(len(m.held), "lease"))
}

// mayAct says why nothing can be changed now, if so.
func (m *model) mayAct(what string) bool {
	switch {
	case m.readOnly:
		m.complain("%s, but this screen is read-only (RO): it changes nothing. Start it without --read-only to act.", what)
	case m.paused:
		m.complain("%s, but the picture is paused and may be old. p goes on.", what)
	case m.stale():
		m.complain("%s, but the picture is stale: it waits for a fresh look.", what)
	default:
		return true
	}
	return false
}

// recheck looks whether what an open plan is about is still so. Beats and time are no change; all else kills
// its confirm key, because the person agreed to something that is not there any more.
func (m *model) recheck(d *dialog) {
	if d.kind == dialogQuit {
		if len(m.held) == 0 {
			m.dialog = nil
		}
		return
	}
	if d.changed != "" {
		return
	}
	e := m.find(d.target.ref)
	if e == nil {
		d.changed = "It is gone since this plan was made."
		return
	}
	if d.kind == dialogRelease {
		if own := m.hold(e); own == nil || own.claimID != d.target.claimID {
			d.changed = "This screen does not hold it any more."
		}
		return
	}
	if now := targetOf(e, m.clock); now != d.target {
		v := e.Judge(m.clock)
		d.changed = m.paint.Safe(fmt.Sprintf("It changed since this plan was made: %s. %s", text.Word(v.State), v.Sentence))
	}
}

// answer is what keys do while a dialog is open: esc leaves it, y confirms a plan, enter confirms leaving.
func (m *model) answer(k keyPress) []command {
	d := m.dialog
	if !k.single || m.clock.Sub(d.opened) < dialogDeaf && k.name != "esc" {
		return nil
	}
	if d.kind == dialogQuit {
		switch k.name {
		case "enter":
			return []command{{quit: true}}
		case "esc", "n":
			m.dialog = nil
		}
		return nil
	}
	switch k.name {
	case "esc", "enter", "n", "q":
		m.dialog = nil
	case "j", "down":
		d.top++
	case "k", "up":
		d.top = max(0, d.top-1)
	case "y":
		m.recheck(d)
		if d.changed != "" || m.readOnly {
			return nil
		}
		m.dialog = nil
		return []command{m.confirmed(d)}
	}
	return nil
}

// confirmed is the job of a plan that was agreed to.
func (m *model) confirmed(d *dialog) command {
	plan, holds := d.target, m.holds
	if d.kind == dialogRelease {
		m.say("Releasing %s", plan.id)
		return command{run: func(context.Context) any {
			err := holds.release(plan)
			return released{plan, err, holds.view()}
		}}
	}
	m.claiming++
	m.say("Claiming %s", plan.id)
	return command{run: func(ctx context.Context) any {
		held, err := holds.claim(ctx, plan)
		return claimed{plan, held, err, holds.view()}
	}}
}

func (m *model) claimDone(c claimed) {
	m.claiming--
	m.holding(c.now)
	if c.err != nil {
		m.complain("Not claimed: %s: %v", c.plan.id, c.err)
		return
	}
	if !slices.Contains(m.held, c.held) {
		return // lost since then, which is told
	}
	m.say("Claimed %s with epoch %d. This screen renews it until R or quit.", c.plan.id, c.held.epoch)
}

func (m *model) releaseDone(r released) {
	m.holding(r.now)
	if r.err != nil {
		m.complain("Release of %s: %v", r.plan.id, r.err)
		return
	}
	m.say("Released %s.", r.plan.id)
}

// dialogLines is the dialog in w columns: its plan, and apart from it the line of its keys.
func (m *model) dialogLines(w int) (plan []string, keys string) {
	d, p := m.dialog, m.paint
	if d.kind == dialogQuit {
		for _, s := range p.wrap(m.quitQuestion(), w-2) {
			plan = append(plan, p.line(w).put(plain, " ").put(strong, s).String())
		}
		if len(plan) == 1 {
			plan[0] = p.line(w).put(plain, " ").put(strong, m.quitQuestion()).String() // its wide gaps kept
		}
		return plan, ""
	}
	for _, f := range d.facts {
		plan = append(plan, m.factLines(f.Head, f.Says, w, plain)...)
	}
	if d.command != "" {
		plan = append(plan, m.factLines("command", d.command, w, plain)...)
	}
	l := p.line(w).put(plain, " ").put(strong, p.glyph(cursorGlyph)+"[ Cancel ]")
	if d.changed != "" {
		plan = append(plan, m.factLines("but", d.changed+" Look again before you act.", w, bad)...)
		return plan, l.put(faint, "   this plan cannot be confirmed any more").String()
	}
	return plan, l.put(plain, "   y "+d.confirm+"   esc cancel").String()
}
