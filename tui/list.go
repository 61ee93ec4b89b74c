package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// listPane draws the list: the head of the columns, and only the rows that are in sight. Every line fills r.w.
func (m *model) listPane(r rect) []string {
	count, widths := m.columnsIn(r.w)
	head := m.paint.line(r.w).to(gutter)
	for c := range count {
		title := c.String()
		if c == m.sort {
			mark := m.paint.glyph(downGlyph)
			if m.reversed {
				mark = m.paint.glyph(upGlyph)
			}
			title += mark
		}
		if c.Number() {
			title = m.paint.PadLeft(title, widths[c])
		}
		head.cell(faint, title, widths[c]).put(plain, " ")
	}
	if m.shows == waitingRows {
		m.waitHead(head)
	}
	lines := []string{head.to(r.w).String()}
	for at := m.top; at < len(m.rows) && len(lines) < r.h; at++ {
		lines = append(lines, m.rowLine(m.rows[at], at == m.cursor, r.w, count, &widths))
	}
	if len(m.rows) == 0 {
		for _, s := range m.emptyLines(r.w - gutter - 1) {
			lines = append(lines, m.paint.line(r.w).to(gutter).put(plain, s).to(r.w).String())
		}
	}
	blank := strings.Repeat(" ", r.w)
	for len(lines) < r.h {
		lines = append(lines, blank)
	}
	return lines[:max(0, r.h)]
}

// columnsIn returns the columns that fit into w cells, and how wide each is. What the names can do without goes to the
// holders.
func (m *model) columnsIn(w int) (count Column, widths [columns]int) {
	if m.shows == waitingRows {
		return m.waitColumns(w)
	}
	count, name := columnsFor(w)
	for c := range count {
		widths[c] = c.width()
	}
	if count > ColHolder {
		spare := name - max(minNameLeft, min(m.longestName, enoughName))
		if more := min(min(m.longestHolder, enoughHolder)-widths[ColHolder], spare); more > 0 {
			widths[ColHolder] += more
			name -= more
		}
	}
	widths[ColName] = name
	return count, widths
}

func (m *model) rowLine(r *row, chosen bool, w int, count Column, widths *[columns]int) string {
	v, unseen := r.verdictAt(m.now), !r.entry.Unseen.IsZero()
	l := m.paint.line(w)
	mark := " "
	if chosen {
		mark = m.paint.glyph(cursorGlyph)
	}
	sign := " "
	if m.marked[r.ref()] {
		sign = m.paint.glyph(markGlyph)
	}
	l.put(strong, mark+sign)
	l.reverse = chosen && !m.focused
	body, stateColour := plain, stateTone(v.State)
	if m.stale() || unseen {
		body, stateColour = faint, faint // what is drawn may not be so any more
	}
	for c := range count {
		switch {
		case c == ColState:
			l.cell(stateColour, m.paint.State(v.State), widths[c])
		case c == ColName:
			l.cell(body, nameCell(m.paint.Style, r.name, m.marks(r, v), widths[c]), widths[c])
		case c == ColHolder:
			l.cell(body, holderIn(m.paint.Style, r.holder, widths[c]), widths[c])
		case c == ColLeft && unseen:
			l.put(body, m.paint.PadLeft("-", widths[c]))
		case c.Number():
			l.put(body, m.paint.PadLeft(c.Cell(m.paint.Style, r.entry, v, m.now), widths[c]))
		default:
			l.cell(body, c.Cell(m.paint.Style, r.entry, v, m.now), widths[c])
		}
		l.put(plain, " ")
	}
	if m.shows == waitingRows {
		m.waitCells(l, body, r)
	}
	return l.to(w).String()
}

// leastName is what marks leave of a name.
const leastName = 8

// nameCell is a name and the marks of its flags in at most w cells. The middle of the name is cut out where that is too
// little, and the marks only when next to nothing would be left of the name. Both are safe text.
func nameCell(st text.Style, name, marks string, w int) string {
	if marks == "" {
		return st.CutMiddle(name, w)
	}
	marks = st.Cut(" "+marks, max(0, w-min(text.Width(name), leastName)))
	return st.CutMiddle(name, w-text.Width(marks)) + marks
}

// UnseenMark is the mark of what cannot be looked at any more.
const UnseenMark = "unseen"

func (m *model) marks(r *row, v verdict.Verdict) string {
	flags := v.Flags
	if m.hold(r.entry) != nil {
		flags |= verdict.Mine
	}
	return m.marksOf(r.entry, flags, r.entry.Held(m.now))
}

// marksOf are the marks of an entry that has these flags and has been held that long.
func (m *model) marksOf(e *watch.Entry, flags verdict.Flag, held time.Duration) string {
	marks := m.paint.Marks(flags, held)
	if !e.Unseen.IsZero() {
		marks = strings.TrimSpace(UnseenMark + " " + marks)
	}
	return marks
}

// emptyLines say why the list is empty and what can be done about it.
func (m *model) emptyLines(w int) []string {
	p := m.paint
	var lines []string
	say := func(format string, args ...any) {
		lines = append(lines, p.wrap(p.Safe(fmt.Sprintf(format, args...)), w)...)
	}
	switch {
	case m.snap == nil && m.ended:
		say("The watcher stopped before it had looked.")
	case m.snap == nil:
		say("Looking for leases, locks and tokens.")
	case len(m.snap.Entries) > 0:
		for _, s := range m.nothingShown() {
			say("%s", s)
		}
	default:
		for _, line := range Empty(m.snap) {
			say("%s", line)
		}
		if slices.ContainsFunc(m.snap.Roots, func(r watch.Root) bool { return r.Kind == "missing" }) {
			say("What is not there is waited for.")
		}
	}
	return lines
}

// Empty says where was looked when nothing is there, what chose each place, and what else can be done. It is not made
// safe.
func Empty(s *watch.Snapshot) []string {
	if len(s.Roots) == 0 {
		return []string{"There is no place to look: no root was given, and no home directory or variable names one."}
	}
	none := "No lease (*.lease.json), lock (*.lock, *.lease) or reclaim token is in"
	var seen, unseen []string
	known := map[string]bool{}
	for _, r := range s.Roots {
		known[r.Path] = true
		at := slices.IndexFunc(s.Errors, func(e watch.EntryError) bool { return e.Path == r.Path })
		switch {
		case at >= 0:
			unseen = append(unseen, fmt.Sprintf("%s (chosen by %s): %s", r.Path, r.ChosenBy, errorWords(s.Errors[at])))
		case r.Kind == "missing":
			seen = append(seen, fmt.Sprintf("%s (not there; chosen by %s)", r.Path, r.ChosenBy))
		default:
			seen = append(seen, fmt.Sprintf("%s (%s; chosen by %s)", r.Path, r.Kind, r.ChosenBy))
		}
	}
	if slices.ContainsFunc(s.Errors, func(e watch.EntryError) bool { return !known[e.Path] }) {
		none = "Not all could be looked at. As far as it could, no lease (*.lease.json), lock (*.lock, *.lease) or reclaim token is in"
	}
	var lines []string
	if len(unseen) > 0 {
		lines = append([]string{"Could not be looked at, so nothing is known of what is in"}, unseen...)
	}
	if len(seen) > 0 {
		lines = append(append(lines, none), seen...)
	}
	return append(lines, "Look elsewhere: holdfast ROOT. To see what it looks like: holdfast demo.")
}

// errorWords are why a place could not be looked at, without the place where the error names that first.
func errorWords(e watch.EntryError) string {
	says := e.Err.Error()
	if _, why, ok := strings.Cut(says, e.Path+": "); ok {
		return why
	}
	return says
}
