package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// past is what was seen of one entry, for the History tab.
type past struct {
	of  ref
	seq uint64 // of the newest snapshot when it was asked for
	watch.History
}

// recall fetches the history of the entry whose History tab is open. What came after a pause began stays hidden.
func (m *model) recall() {
	r := m.current()
	switch {
	case r == nil || m.tab != tabHistory || m.snap == nil:
		m.past = past{}
		return
	case m.past.of == r.ref() && m.past.seq == m.snap.Seq, m.history == nil:
		return
	}
	p := past{of: r.ref(), seq: m.snap.Seq, History: m.history(r.entry.Kind, r.entry.Path)}
	if m.paused {
		p.Beats = slices.DeleteFunc(p.Beats, m.now.Before)
		p.Holders = slices.DeleteFunc(p.Holders, func(h watch.HolderAt) bool { return h.Time.After(m.now) })
		p.Epochs = slices.DeleteFunc(p.Epochs, func(e watch.EpochAt) bool { return e.Time.After(m.now) })
		p.States = slices.DeleteFunc(p.States, func(s watch.StateAt) bool { return s.Time.After(m.now) })
	}
	m.past = p
}

// historyLines are the History tab: the beats, and what else was seen, newest first.
func (m *model) historyLines(r *row, w int) []string {
	p, h := m.paint, &m.past
	var lines []string
	say := func(t tone, s string) {
		for _, part := range p.wrap(p.Safe(s), w-2) {
			lines = append(lines, p.line(w).put(plain, " ").put(t, part).String())
		}
	}
	watched := fmt.Sprintf("Watched since %s, %s ago.", m.moment(m.since), text.Long(verdict.Age(m.since, m.now)))
	switch {
	case isTemp(r.entry):
		say(plain, "No history is kept of temps.")
		return lines
	case h.of != r.ref() || len(h.Beats)+len(h.Holders)+len(h.Epochs)+len(h.States) == 0:
		say(plain, "Nothing is recorded yet. "+watched)
		return lines
	}
	lines = append(lines, m.beatLines(r, w)...)
	list := func(head string, n int, says func(i int) string) {
		for i := range n {
			if i > 0 {
				head = ""
			}
			lines = append(lines, m.factLines(head, p.Safe(says(n-1-i)), w, plain)...)
		}
	}
	list("states", len(h.States), func(i int) string {
		s := h.States[i]
		return strings.TrimSpace(m.moment(s.Time) + " " + p.State(s.State) + " " + s.Cause)
	})
	list("holders", len(h.Holders), func(i int) string {
		o := &h.Holders[i].Holder
		s := fmt.Sprintf("%s pid %d on %s", m.moment(h.Holders[i].Time), h.Holders[i].PID, cmp.Or(o.Host, "an unknown host"))
		if o.Channel != "" {
			s += ", " + holderWords(o)
		}
		return s
	})
	list("epochs", len(h.Epochs), func(i int) string {
		return fmt.Sprintf("%s epoch %d", m.moment(h.Epochs[i].Time), h.Epochs[i].Epoch)
	})
	say(faint, watched)
	return lines
}

func isTemp(e *watch.Entry) bool { return e.Kind == watch.Temp }

// moment is a time of day, with its date where that is not today's.
func (m *model) moment(t time.Time) string {
	t = t.Local()
	if y, day := t.Year(), t.YearDay(); y == m.now.Year() && day == m.now.YearDay() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// pace is how long after a beat the next one is late, and how long after it others take the holder for gone.
func pace(e *watch.Entry) (late, limit time.Duration) {
	if f, ok := e.Subject.(*verdict.LeaseFacts); ok && f.Interval > 0 {
		return f.Interval + f.Interval/2, f.TTL
	}
	return verdict.LockLate, verdict.LockExpiry
}

// stride is the time from one beat to the next.
type stride struct {
	from, to time.Time
	handed   bool // another holder came between
	open     bool // the next beat has not come yet
}

// strides are the times between the beats; the last one is still open while somebody holds the entry.
func (m *model) strides(r *row) []stride {
	h := &m.past
	var list []stride
	for i := 1; i < len(h.Beats); i++ {
		s := stride{from: h.Beats[i-1], to: h.Beats[i]}
		s.handed = slices.ContainsFunc(h.Holders, func(o watch.HolderAt) bool {
			taken := o.Holder.Acquired
			if taken.IsZero() {
				taken = o.Time
			}
			return taken.After(s.from) && !taken.After(s.to)
		})
		list = append(list, s)
	}
	if n := len(h.Beats); n > 0 && r.holder != nil {
		list = append(list, stride{from: h.Beats[n-1], to: m.now, open: true})
	}
	return list
}

// How late the end of a stride is.
const (
	onTime = iota
	isLate
	isOver
	handed
	paces
)

// beatLines draw the beats, a cell for the time from each to the next, newest at the right, and say which were late.
func (m *model) beatLines(r *row, w int) []string {
	p := m.paint
	late, limit := pace(r.entry)
	strides := m.strides(r)
	if len(m.past.Beats) == 0 {
		return m.factLines("beats", "none seen", w, plain)
	}
	indent := 3 + factWidth
	l := p.line(w).to(3).put(faint, "beats").to(indent)
	room := max(1, w-indent-1)
	if cut := len(strides) - room; cut > 0 {
		strides = strides[cut+1:]
		l.put(faint, p.Ellipsis())
	}
	marks := p.beatMarks()
	var count [paces]int
	var longest stride
	for _, s := range strides {
		pace, t := onTime, good
		switch gap := s.to.Sub(s.from); {
		case s.handed:
			pace, t = handed, faint
		case gap > limit:
			pace, t = isOver, bad
		case gap > late:
			pace, t = isLate, warn
		}
		count[pace]++
		if (pace == isLate || pace == isOver) && s.to.Sub(s.from) > longest.to.Sub(longest.from) {
			longest = s
		}
		l.put(t, marks[pace])
	}
	lines := []string{l.String()}
	parts := []string{fmt.Sprintf("%s %d on time", marks[onTime], count[onTime])}
	if n := count[isLate]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s %d late", marks[isLate], n))
	}
	if n := count[isOver]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s %d over %s", marks[isOver], n, text.Long(limit)))
	}
	if n := count[handed]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s %d new holder", marks[handed], n))
	}
	s := strings.Join(parts, "  ")
	if !longest.to.IsZero() {
		gap := text.Long(longest.to.Sub(longest.from))
		if longest.open {
			s += fmt.Sprintf("; none since %s, for %s", m.moment(longest.from), gap)
		} else {
			s += fmt.Sprintf("; the longest %s, until %s", gap, m.moment(longest.to))
		}
	}
	return append(lines, m.factLines("", s, w, plain)...)
}

// beatMarks are how a beat looks: on time, late, over the limit, and the first of another holder. Their heights tell
// them apart without colours.
func (p *paint) beatMarks() [paces]string {
	if p.ASCII {
		return [paces]string{onTime: ".", isLate: "+", isOver: "#", handed: "|"}
	}
	return [paces]string{onTime: "⣀", isLate: "⣤", isOver: "⣿", handed: p.glyph(wallGlyph)}
}
