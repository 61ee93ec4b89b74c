package tui

import (
	"fmt"
	"slices"
	"time"

	"holdfast/tui/text"
	"holdfast/watch"
)

// event is one line of what happened, newest last. Its text is safe.
type event struct {
	at   time.Time
	tone tone
	text string
}

// How many events are kept. Renewals are kept apart: a few holders that beat would push out everything else.
const (
	maxEvents   = 200
	maxRenewals = 20
)

// record adds what changed to the events. Names are looked up in the snapshots before and after the change.
func (m *model) record(changes []watch.Change) {
	changes = changes[max(0, len(changes)-maxEvents):]
	for i := range changes {
		e := m.eventOf(&changes[i])
		if changes[i].Event == watch.Renewed {
			m.renewals = lastOf(append(m.renewals, e), maxRenewals)
		} else {
			m.events = lastOf(append(m.events, e), maxEvents)
		}
	}
}

// lastOf keeps the last events, in an array of their own when some are dropped: the old one would grow for ever.
func lastOf(events []event, n int) []event {
	if extra := len(events) - n; extra > 0 {
		return slices.Clone(events[extra:])
	}
	return events
}

// recent are the n newest events, oldest first. Renewals get the room that the others leave.
func (m *model) recent(n int) []event {
	shown := slices.Clone(m.events[max(0, len(m.events)-n):])
	if room := n - len(shown); room > 0 {
		shown = append(shown, m.renewals[max(0, len(m.renewals)-room):]...)
		slices.SortStableFunc(shown, func(a, b event) int { return a.at.Compare(b.at) })
	}
	return shown
}

// countChanges is how many changes a pause hides; a renewal is none that anybody would miss.
func countChanges(changes []watch.Change) int {
	n := 0
	for i := range changes {
		if changes[i].Event != watch.Renewed {
			n++
		}
	}
	return n
}

func (m *model) eventOf(c *watch.Change) event {
	e := event{at: c.Time, tone: plain}
	s := c.Event
	if c.Entry != nil {
		s += " " + c.Entry.Title()
	}
	states := func() string {
		if c.From == c.To {
			return text.Word(c.To)
		}
		return text.Word(c.From) + " to " + text.Word(c.To)
	}
	switch c.Event {
	case watch.Renewed:
		e.tone = faint
		s += whoWords(c)
	case watch.Gone:
		s += whoWords(c) + ". " + c.Sentence
	case watch.Watch:
		s = c.Path + ": " + c.Sentence
	case watch.Appeared:
		e.tone = stateTone(c.To)
		s += " " + text.Word(c.To) + ". " + c.Sentence
	default:
		e.tone = stateTone(c.To)
		s += " " + states() + ". " + c.Sentence
	}
	e.text = m.paint.Safe(s)
	return e
}

func whoWords(c *watch.Change) string {
	if c.Holder == nil {
		return ""
	}
	s := fmt.Sprintf(" pid %d", c.PID)
	if c.Holder.Epoch != 0 {
		s += fmt.Sprintf(" epoch %d", c.Holder.Epoch)
	}
	return s
}

// eventsPane draws the newest events that fit.
func (m *model) eventsPane(r rect) []string {
	if r.h < 1 {
		return nil
	}
	lines := []string{m.paint.rule(r.w, "events", "")}
	shown := m.recent(r.h - 1)
	if len(shown) == 0 {
		lines = append(lines, m.paint.line(r.w).put(faint, " nothing has changed since the screen opened").String())
	}
	for _, e := range shown {
		lines = append(lines, m.paint.line(r.w).put(faint, " "+e.at.Format(time.TimeOnly)+" ").put(e.tone, e.text).String())
	}
	return fit(lines, r.h)
}
