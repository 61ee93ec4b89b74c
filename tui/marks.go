package tui

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// toggleMark marks the entry under the cursor, or takes its mark away, and goes on to the next one.
func (m *model) toggleMark() {
	r := m.current()
	if r == nil {
		return
	}
	if what := r.ref(); m.marked[what] {
		delete(m.marked, what)
	} else {
		if m.marked == nil {
			m.marked = map[ref]bool{}
		}
		m.marked[what] = true
	}
	m.goTo(m.cursor + 1)
}

// dropMarks takes the marks of entries that are gone: what comes back later under the same path is another entry.
func (m *model) dropMarks() {
	if len(m.marked) == 0 {
		return
	}
	maps.DeleteFunc(m.marked, func(what ref, _ bool) bool { return m.index[what] == nil })
}

// markedRows are the rows of what is marked, listed or not, the most urgent first.
func (m *model) markedRows() []*row {
	if len(m.marked) == 0 {
		return nil
	}
	var rows []*row
	for what := range m.marked {
		if r := m.index[what]; r != nil {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, byUrgency)
	return rows
}

// markedWords count the marks for the header; "": there are none.
func (m *model) markedWords() string {
	if len(m.marked) == 0 {
		return ""
	}
	return fmt.Sprintf("%d marked", len(m.marked))
}

// fewNames is how many entries of a plan are named in one sentence.
const fewNames = 4

// piece is one entry of a plan for several.
type piece struct {
	mark    ref // what was marked: for a token that blocks a lock, the lock
	target  target
	watched bool
}

// planChange opens the plan for B or R: for what is marked, or for what is under the cursor where nothing is.
func (m *model) planChange(what intent) *dialog {
	r := m.current()
	switch rows := m.markedRows(); len(rows) {
	case 0:
	case 1:
		r = rows[0] // all that can be asked of it is what can be asked of one
	default:
		return m.planMarked(what, rows)
	}
	return m.planHere(what, r)
}

// planHere opens the plan for B or R for one row.
func (m *model) planHere(what intent, r *row) *dialog {
	if what == intentRelease {
		return m.planRelease(r)
	}
	return m.planBreak(r)
}

// planMarked is one plan for several entries. It takes what y may confirm and no more: whoever is to be taken from is
// named one at a time. What is left out is listed with the reason.
func (m *model) planMarked(what intent, rows []*row) *dialog {
	if !m.mayAct(acting(what)) {
		return nil
	}
	d := &dialog{kind: dialogBreak, opened: m.clock, confirm: "break these", many: []piece{}}
	verb := "break"
	if what == intentRelease {
		d.kind, d.confirm, verb = dialogRelease, "release these", "release"
	}
	var left, each []Fact
	var names []string
	planned := map[ref]bool{}
	for _, r := range rows {
		one, why := m.planOne(what, r)
		switch {
		case one == nil:
		case planned[one.target.ref]:
			why = "its token is in this plan already"
		case one.typing != nil:
			v := r.entry.Judge(m.now)
			why = fmt.Sprintf("%s. It takes its name typed, one at a time: mark it alone, then %s", text.Word(v.State), strings.ToUpper(verb[:1]))
			if one.target.ref != r.ref() {
				why = "to remove the token that blocks it takes its name typed, one at a time: mark it alone, then B"
			}
		}
		if why != "" {
			if !strings.HasPrefix(why, r.name+" ") {
				why = r.name + ": " + why
			}
			left = append(left, Fact{"left out", m.paint.Safe(strings.TrimRight(why, "."))})
			continue
		}
		planned[one.target.ref] = true
		d.many = append(d.many, piece{r.ref(), one.target, one.watched})
		d.watched = d.watched || one.watched
		names = append(names, one.target.name)
		each = append(each, Fact{fmt.Sprintf("%d.", len(d.many)), m.paint.Safe(strings.TrimSuffix(one.title, "?"))})
		for _, f := range one.facts {
			if f.Head != "log" && f.Head != "undo" && f.Head != "type" {
				each = append(each, f)
			}
		}
		if one.command != "" {
			each = append(each, Fact{"command", one.command})
		}
	}
	d.title = fmt.Sprintf("%s %d of %d marked?", verb, len(d.many), len(rows))
	now := fmt.Sprintf("%d to %s, %d left out", len(d.many), verb, len(left))
	if n := len(names); n > 0 && n <= fewNames {
		now = fmt.Sprintf("%d to %s (%s), %d left out", n, verb, strings.Join(names, ", "), len(left))
	}
	if hidden := m.markedUnlisted(rows); hidden > 0 {
		now += fmt.Sprintf("; %d of the marked are not in the list that is shown", hidden)
	}
	d.facts = append(d.facts, Fact{"now", m.paint.Safe(now)})
	if len(d.many) > 0 {
		d.facts = append(d.facts, Fact{"then", "one by one, each compared once more before; one that fails does not stop the others"})
		if what == intentBreak {
			d.facts = append(d.facts, Fact{"log", m.paint.Safe(m.auditWords())},
				Fact{"undo", "`holdfast break --undo` of each path puts it back, while its name is free"})
		}
	}
	d.facts = append(append(d.facts, left...), each...)
	return d
}

// planOne is the plan that one entry would get by itself, or why there is none.
func (m *model) planOne(what intent, r *row) (*dialog, string) {
	if !r.entry.Unseen.IsZero() {
		return nil, m.notSeen(r)
	}
	if what == intentRelease {
		if why := m.notReleasable(r); why != "" {
			return nil, "this screen does not hold it"
		}
		return m.releasePlan(r), ""
	}
	e, why := m.toBreak(r)
	if why != "" {
		return nil, why
	}
	return m.breakPlan(r, e), ""
}

// markedUnlisted is how many of the rows the view or the filter leaves out of the list.
func (m *model) markedUnlisted(rows []*row) int {
	n := 0
	for _, r := range rows {
		if !slices.ContainsFunc(m.rows, func(other *row) bool { return other.ref() == r.ref() }) {
			n++
		}
	}
	return n
}

// recheckMany kills a plan for several entries when one of them is not what the plan says, and names each such.
func (m *model) recheckMany(d *dialog) {
	if m.fresh == nil {
		return
	}
	entries := make(map[ref]*watch.Entry, len(d.many))
	for i := range d.many {
		entries[d.many[i].target.ref] = nil
	}
	for _, e := range m.fresh.Entries {
		if _, wanted := entries[refOf(e)]; wanted {
			entries[refOf(e)] = e
		}
	}
	var says []string
	changed := 0
	for i := range d.many {
		t := &d.many[i].target
		words := m.changeOf(d.kind, t, entries[t.ref])
		if words == "" {
			continue
		}
		if changed++; changed <= fewNames {
			says = append(says, m.paint.Safe(t.name)+": "+words)
		}
	}
	if changed > fewNames {
		says = append(says, fmt.Sprintf("And %d more.", changed-fewNames))
	}
	d.spoil(strings.Join(says, " "), "Something in it changed since this plan was made, and is now as it was.")
}

// bundled is what a plan for several entries came to.
type bundled struct {
	kind  dialogKind
	tried int
	done  []ref // their marks
	name  string
	err   error // the first one, of name
	now   holdings
}

// manyJob does what a plan for several entries says, one by one.
func (m *model) manyJob(d *dialog) func(context.Context) any {
	parts, kind, holds := d.many, d.kind, m.holds
	doing := "Breaking"
	if kind == dialogRelease {
		doing = "Releasing"
	}
	more := "."
	if d.watched {
		more = "; those that are not proven dead are watched for 16s first, each."
	}
	m.say("%s %s, one by one%s", doing, text.Count(len(parts), "entry"), more)
	return func(ctx context.Context) any {
		b := bundled{kind: kind, tried: len(parts)}
		for i := range parts {
			var err error
			if kind == dialogRelease {
				err = holds.release(parts[i].target)
			} else {
				err = holds.remove(ctx, parts[i].target, order{})
			}
			switch {
			case err == nil:
				b.done = append(b.done, parts[i].mark)
			case b.err == nil:
				b.name, b.err = parts[i].target.name, err
			}
		}
		b.now = holds.view()
		return b
	}
}

// manyDone tells what became of a plan for several entries. What was done loses its mark; what failed keeps it.
func (m *model) manyDone(b bundled) {
	m.holding(b.now)
	for _, what := range b.done {
		delete(m.marked, what)
	}
	did, undo := "Broke", " `holdfast break --undo` of each path puts it back."
	if b.kind == dialogRelease {
		did, undo = "Released", ""
	}
	if b.err == nil {
		m.say("%s %s.%s", did, text.Count(len(b.done), "entry"), undo)
		return
	}
	m.complain("%s %d of %s. Not done: %s: %v%s", did, len(b.done), text.Count(b.tried, "entry"), b.name, b.err, moreFailed(b.tried-len(b.done)-1))
}

func moreFailed(n int) string {
	if n < 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n)
}

// typedName is what is typed to confirm what takes something from somebody: the shortest of its names that nothing else
// goes by, so that it cannot be typed of one entry and meant of another. It is not made safe.
func (m *model) typedName(e *watch.Entry) string {
	for _, name := range []string{shortName(e), e.Place()} {
		if !m.othersCalled(e, strings.TrimSpace(name)) {
			return name
		}
	}
	return e.Path
}

// othersCalled reports whether another entry than e goes by the name.
func (m *model) othersCalled(e *watch.Entry, name string) bool {
	for _, other := range m.fresh.Entries {
		if refOf(other) != refOf(e) && slices.Contains([]string{other.ID, other.Name, filepath.Base(other.Path), other.Place()}, name) {
			return true
		}
	}
	return false
}

// stateWords are the state of an entry and the sentence about it.
func stateWords(v verdict.Verdict) string { return text.Word(v.State) + ". " + v.Sentence }
