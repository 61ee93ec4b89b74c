package tui

import (
	"context"
	"fmt"
	"strings"

	"holdfast/fslock/verdict"
	"holdfast/sweep"
	"holdfast/tui/text"
	"holdfast/watch"
)

// notSweepable says why nothing can be swept; "": it can.
func (m *model) notSweepable() string {
	switch {
	case m.snap == nil:
		return "W sweeps nothing yet: nothing was looked at."
	case m.holds.locker == nil:
		return fmt.Sprintf("W sweeps nothing here: %v.", errNoLocker)
	default:
		return ""
	}
}

// planSweep opens the plan for a sweep over all roots, and has it made: that takes a walk over the disk.
func (m *model) planSweep() (*dialog, []command) {
	if m.refused(intentSweep, nil) {
		return nil, nil
	}
	m.sweeps++
	d := &dialog{kind: dialogSweep, title: "sweep?", confirm: "sweep", opened: m.clock, number: m.sweeps}
	d.facts = []Fact{{"now", "planning" + m.paint.Ellipsis()}}
	var roots []string
	for i := range m.snap.Roots {
		roots = append(roots, m.snap.Roots[i].Path)
	}
	holds, number, temps := m.holds, d.number, m.shows == litterRows
	return d, []command{{run: func(ctx context.Context) any {
		return planned{number, holds.plan(ctx, roots, temps)}
	}}}
}

// maxListed is how many files of a sweep are named one by one.
const maxListed = 100

// sweepPlanned fills the plan that is open, if it is the one that was asked for.
func (m *model) sweepPlanned(p planned) {
	d := m.dialog
	if d == nil || d.kind != dialogSweep || d.number != p.number {
		return
	}
	d.sweep, d.opened, d.facts = p.plan, m.clock, nil // it can be read only now
	s, safe := p.plan, m.paint.Safe
	fact := func(head, says string) { d.facts = append(d.facts, Fact{head, safe(says)}) }
	switch {
	case len(s.removed) > 0:
		fact("now", sweepCount(s.removed)+" to remove, "+sweepCount(s.kept)+" to leave")
	case len(s.kept) > 0:
		fact("now", "nothing to sweep; "+sweepCount(s.kept)+" to leave")
	case s.temps:
		fact("now", "nothing to sweep: there are no tokens and no temps")
	default:
		fact("now", "nothing to sweep: there are no tokens; temps are swept from the litter view (4)")
	}
	for _, err := range s.errs {
		fact("error", err.Error())
	}
	if len(s.removed) > 0 {
		fact("compared", "each once more before it goes: the same file, the same bytes, still nobody's")
		fact("log", m.auditWords())
	}
	list := func(head string, steps []sweep.Step) {
		for _, step := range steps[:min(len(steps), maxListed)] {
			fact(head, m.short(step.Path)+": "+step.Why)
		}
		if more := len(steps) - maxListed; more > 0 {
			fact(head, fmt.Sprintf("and %d more", more))
		}
	}
	list("remove", s.removed)
	list("leave", s.kept)
	if len(s.removed) == 0 {
		return
	}
	command := []string{"holdfast sweep"}
	for _, root := range s.roots {
		command = append(command, verdict.Quote(root))
	}
	if s.temps {
		command = append(command, "--temps")
	}
	d.command = safe(strings.Join(append(command, "--yes"), " "))
}

// sweepCount says how many tokens and temps there are: "2 tokens and 1 temp".
func sweepCount(steps []sweep.Step) string {
	tokens := 0
	for i := range steps {
		if steps[i].Token != nil {
			tokens++
		}
	}
	var parts []string
	if tokens > 0 || len(steps) == 0 {
		parts = append(parts, text.Count(tokens, "token"))
	}
	if temps := len(steps) - tokens; temps > 0 {
		parts = append(parts, text.Count(temps, "temp"))
	}
	return strings.Join(parts, " and ")
}

// recheckSweep kills the plan when the picture, where it is newer, shows something of it gone or changed.
func (m *model) recheckSweep(d *dialog) {
	if d.sweep == nil || m.fresh == nil || !m.fresh.Time.After(d.opened) {
		return
	}
	entries := make(map[ref]*watch.Entry, len(d.sweep.targets))
	for i := range d.sweep.targets {
		entries[d.sweep.targets[i].ref] = nil
	}
	for _, e := range m.fresh.Entries {
		if _, planned := entries[refOf(e)]; planned {
			entries[refOf(e)] = e
		}
	}
	says := ""
	for i := range d.sweep.targets {
		t := &d.sweep.targets[i]
		switch e := entries[t.ref]; {
		case e == nil:
			says = fmt.Sprintf("Since this plan was made, %s is gone.", t.name)
		case !e.Unseen.IsZero():
			says = fmt.Sprintf("Since this plan was made, %s cannot be looked at any more.", t.name)
		case targetOf(e, m.clock).fingerprint != t.fingerprint:
			says = fmt.Sprintf("Since this plan was made, %s changed: %s", t.name, e.Judge(m.clock).Sentence)
		default:
			continue
		}
		break
	}
	d.spoil(m.paint.Safe(says), "Something in it changed since this plan was made, and is now as it was.")
}

func (m *model) sweepDone(s swept) {
	line := fmt.Sprintf("Swept: %d removed", s.removed)
	if s.kept > 0 {
		line += fmt.Sprintf(", %d left because they changed", s.kept)
	}
	if len(s.errs) == 0 {
		m.say("%s.", line)
		return
	}
	m.complain("%s, %s; the first: %v", line, text.Count(len(s.errs), "error"), s.errs[0])
}
