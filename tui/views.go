package tui

import (
	"fmt"
	"strings"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// kindOfRows is which entries the list shows, apart from the filter.
type kindOfRows uint8

const (
	allRows kindOfRows = iota
	problemRows
	waitingRows // what somebody waits for, or is at work on
	litterRows  // tokens and temps
	mineRows    // what this screen holds
	views
)

func (k kindOfRows) String() string {
	return [views]string{"all", "problems", "waiting", "litter", "mine"}[k]
}

// none says that a view is empty.
func (k kindOfRows) none() string {
	return [views]string{"No entries", "No problems", "Nobody is seen waiting for anything", "No tokens and no temps", "This screen holds nothing"}[k]
}

// inView reports whether the view that is open has room for the row.
func (m *model) inView(r *row) bool {
	switch m.shows {
	case problemRows:
		return r.entry.IsProblem()
	case waitingRows:
		return isWaitedFor(r.entry)
	case litterRows:
		return isLitter(r.entry)
	case mineRows:
		return r.mine
	case allRows, views:
	}
	return true
}

func isLitter(e *watch.Entry) bool { return e.Kind == watch.Token || e.Kind == watch.Temp }

// isWaitedFor reports whether somebody waits for the entry, or is in its critical section, so that others have to.
func isWaitedFor(e *watch.Entry) bool { return len(e.Waiters) > 0 || e.Hidden || len(inside(e)) > 0 }

// isMine reports whether this screen, or another holder in this very process, holds the entry.
func (m *model) isMine(e *watch.Entry) bool {
	return m.hold(e) != nil || e.Verdict.Flags.Has(verdict.Mine)
}

// viewNote says which view is open and how much of the list it leaves out; "" where all is shown.
func (m *model) viewNote() string {
	if m.shows == allRows {
		return ""
	}
	return fmt.Sprintf("View %d, %s: %d hidden; esc shows all", int(m.shows)+1, m.shows, m.unshown)
}

// waitColumns are the columns of the view of waiters, and where on the line whoever waits is told.
func (m *model) waitColumns(w int) (count Column, widths [columns]int) {
	widths[ColState] = ColState.width()
	rest := w - gutter - widths[ColState] - 1
	widths[ColName] = max(minNameLeft, min(m.longestName, rest*2/5))
	return ColName + 1, widths
}

// Where the view of waiters has room for whoever holds the entry, and how wide that is.
const (
	heldFrom  = 66
	heldWidth = 13
)

// waitHead is the rest of the head of the columns in the view of waiters.
func (m *model) waitHead(l *line) {
	if l.limit >= heldFrom {
		l.cell(faint, "HELD BY", heldWidth).put(plain, " ")
	}
	l.put(faint, "WAITED FOR BY")
}

// waitCells are the rest of a row in the view of waiters: who holds, and who waits for that.
func (m *model) waitCells(l *line, body tone, r *row) {
	if l.limit >= heldFrom {
		l.cell(body, m.paint.Cut(m.heldBy(r), heldWidth), heldWidth).put(plain, " ")
	}
	l.put(body, m.paint.Safe(strings.TrimPrefix(waitWords(r.entry), oneWaits)))
}

// heldBy is the holder of an entry in a few cells of safe text.
func (m *model) heldBy(r *row) string {
	h := r.holder
	switch {
	case h == nil:
		return "nobody"
	case m.snap != nil && h.Host != "" && h.Host != m.snap.Observer.Host:
		return m.paint.Safe(fmt.Sprintf("%d@%s", h.PID, h.Host))
	default:
		return fmt.Sprintf("pid %d", r.entry.PID())
	}
}

// nothingShown says why the list is empty although there are entries, and what shows them.
func (m *model) nothingShown() []string {
	all := "all " + text.Count(m.total, "entry")
	switch {
	case m.filter.text != "" && m.shows != allRows:
		return []string{fmt.Sprintf("No entry matches /%s among the %s. esc clears the filter; 1 shows all that match.", m.filter.text, m.shows)}
	case m.filter.text != "":
		return []string{fmt.Sprintf("No entry matches /%s. esc shows %s again.", m.filter.text, all)}
	case m.shows == waitingRows:
		return []string{
			m.shows.none() + ". esc shows " + all + ".",
			"Seen are whoever is blocked in flock on this machine, and whoever left a temp beside a lock to wait for it.",
		}
	default:
		return []string{m.shows.none() + ". esc shows " + all + "."}
	}
}

// inside are the processes in the critical section of a lease.
func inside(e *watch.Entry) []proc.FlockHolder {
	if f, ok := e.Subject.(*verdict.LeaseFacts); ok {
		return f.Inside
	}
	return nil
}

// oneWaits is left out where it stands below a head that says so.
const oneWaits = "1 waits: "

// waitWords say who waits for an entry, and whom those wait for: "2 wait: node 4242 (poll), agentmux 77 (flock)". They
// are not made safe.
func waitWords(e *watch.Entry) string {
	var parts []string
	if len(e.Waiters) > 0 {
		who := make([]string, len(e.Waiters))
		for i, w := range e.Waiters {
			who[i] = waiterWords(w)
		}
		head := oneWaits
		if len(who) > 1 {
			head = fmt.Sprintf("%d wait: ", len(who))
		}
		parts = append(parts, head+strings.Join(who, ", "))
	}
	for _, h := range inside(e) {
		parts = append(parts, "inside: "+insideWords(h))
	}
	if e.Hidden {
		parts = append(parts, "inside: a process hidden from here")
	}
	return strings.Join(parts, "; ")
}

func waiterWords(w watch.Waiter) string {
	how := w.How
	if w.Stopped {
		how += ", stopped"
	}
	return fmt.Sprintf("%s (%s)", processWords(w.Name, w.PID), how)
}

func insideWords(h proc.FlockHolder) string {
	s := processWords(h.Name, h.PID)
	if h.Stopped {
		s += " (stopped)"
	}
	return s
}

func processWords(name string, pid int) string {
	if name == "" {
		return fmt.Sprintf("pid %d", pid)
	}
	return fmt.Sprintf("%s %d", name, pid)
}

// waitFacts are who waits for an entry and who is in its critical section, each in a line.
func waitFacts(e *watch.Entry) []Fact {
	var facts []Fact
	for _, h := range inside(e) {
		facts = append(facts, Fact{"inside", insideWords(h) + " is in its critical section"})
	}
	if e.Hidden {
		facts = append(facts, Fact{"inside", "somebody is in its critical section, and hidden from here: " +
			"in another namespace, or /proc does not show it"})
	}
	for _, w := range e.Waiters {
		facts = append(facts, Fact{"waits", waiterSentence(w)})
	}
	return facts
}

func waiterSentence(w watch.Waiter) string {
	s := processWords(w.Name, w.PID)
	switch w.How {
	case watch.ByFlock:
		s += ", blocked in flock at its critical section"
	case watch.ByPoll:
		s += ", which tries again and again to take it"
	default:
		s += ", by " + w.How
	}
	if w.Stopped {
		s += "; it is stopped"
	}
	return s
}
