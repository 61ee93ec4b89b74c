package tui

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// tab is a page of the detail.
type tab uint8

const (
	tabOverview tab = iota
	tabProcess
	tabHistory
	tabRaw
	tabs
)

func (t tab) String() string { return [tabs]string{"Overview", "Process", "History", "Raw"}[t] }

// factWidth is the room for the heads of facts.
const factWidth = 10

// leastTitle is what the tabs leave of the title of the detail, in cells.
const leastTitle = 12

// factLines are a head and what is said of it, wrapped. s is safe text.
func (m *model) factLines(head, s string, w int, t tone) []string {
	p := m.paint
	indent := 3 + factWidth
	if w < 40 {
		indent = 3
	}
	var lines []string
	for i, part := range p.wrap(s, w-indent) {
		l := p.line(w).to(3)
		if i == 0 && indent > 3 {
			l.put(faint, head)
		}
		lines = append(lines, l.to(indent).put(t, part).String())
	}
	return lines
}

// detailPane draws what is known of the entry under the cursor: a title with the tabs, and the open tab.
func (m *model) detailPane(r rect) []string {
	if r.h < 1 {
		return nil
	}
	title := "nothing chosen"
	if row := m.current(); row != nil {
		title = row.name
	}
	names := make([]string, tabs)
	for t := range tabs {
		names[t] = t.String()
		if t == m.tab {
			names[t] = "[" + names[t] + "]"
		}
	}
	lines := m.detailLines(r)
	h := r.h - 1
	top := max(0, min(m.scroll, len(lines)-h))
	note := strings.Join(names, " ")
	room := r.w - text.Width(note) - 6 // of the title, beside what a rule draws
	if len(lines) > h && m.zoomed {
		if how := fmt.Sprintf(" %d%%", (top+h)*100/len(lines)); room-len(how) >= min(text.Width(title), leastTitle) {
			note += how
		}
	}
	if !m.zoomed && room < min(text.Width(title), leastTitle) {
		title = "" // the list beside it has the cursor on it: that there are tabs is told nowhere else
	}
	cut := len(lines) > top+h && h > 0
	lines = lines[min(top, len(lines)):min(len(lines), top+h)]
	if cut && r.h > mediumDetail+1 {
		lines[h-1] = m.paint.line(r.w).put(faint, "   "+m.paint.Ellipsis()+" more: enter, or tab and j").String()
		if m.zoomed || m.focused {
			lines[h-1] = m.paint.line(r.w).put(faint, "   "+m.paint.Ellipsis()+" more: j").String()
		}
	}
	return fit(append([]string{m.paint.rule(r.w, title, note)}, lines...), r.h)
}

// detailLines is the whole text of the open tab, for a pane of that size.
func (m *model) detailLines(r rect) []string {
	row := m.current()
	if row == nil {
		return nil
	}
	switch m.tab {
	case tabProcess:
		return m.processLines(row, r.w)
	case tabHistory:
		return m.historyLines(row, r.w)
	case tabRaw:
		return m.rawLines(row, r.w)
	case tabOverview, tabs:
	}
	if r.h <= mediumDetail+1 {
		return m.brief(row, r.w)
	}
	return m.overview(row, r.w)
}

// brief is the overview in five lines.
func (m *model) brief(r *row, w int) []string {
	p := m.paint
	v := r.entry.Judge(m.now)
	lines := m.sentenceLines(v, sentence(r.entry, v, m.now), w, 2)
	var saw []string
	for _, c := range v.Evidence {
		if c.Skipped == "" && c.Speaks != proc.Neither {
			saw = append(saw, c.Name+" "+c.Saw)
		}
	}
	if len(saw) == 0 {
		for _, c := range v.Evidence {
			if c.Skipped == "" {
				saw = append(saw, c.Name+" "+c.Saw)
			}
		}
	}
	const from = 3 + factWidth
	oneLine := func(head, s string) {
		if s != "" {
			lines = append(lines, p.line(w).to(3).put(faint, head).to(from).put(plain, p.Safe(s)).String())
		}
	}
	waits := waitWords(r.entry)
	if waits == "" || len(lines) == 1 { // a long sentence says why: whoever waits and the next step need the room
		oneLine("why", strings.Join(saw, "; "))
	}
	oneLine("clears", clears(r.entry, v, m.now))
	oneLine("waits", strings.TrimPrefix(waits, oneWaits))
	if len(lines) < mediumDetail {
		steps := nextSteps(m.snap, r.entry, &v)
		if m.hold(r.entry) != nil {
			steps = []string{"R release"}
		}
		if step := m.tokenStep(r); step != "" {
			steps = []string{step}
		}
		const keys = "y copy path   enter more"
		says := keys
		if len(steps) > 0 { // a long command is cut, and not the keys behind it
			says = p.Cut(p.Safe(strings.Join(steps, "   ")), w-from-len(keys)-4) + "   " + keys
		}
		oneLine("next", says)
	}
	return lines
}

// tokenStep is the key that removes a token, the one under the cursor or the one that blocks the lock there, or a temp
// that nobody uses; "": none does, or nothing may be changed.
func (m *model) tokenStep(r *row) string {
	switch {
	case m.readOnly || !r.entry.Unseen.IsZero():
		return ""
	case r.entry.Kind == watch.Token && m.whyNotHere(intentBreak, r) == "":
		return "B remove this token (plan first)"
	case r.entry.Kind == watch.Temp && m.shows == litterRows && r.stateAt(m.now) == verdict.Litter && m.notSweepable() == "":
		return "W sweep temps away (plan first)"
	case blockingToken(r.entry, m.now) != nil:
		return "B remove that token (plan first)"
	default:
		return ""
	}
}

// nextSteps are the next safe commands but the one whose answer is on the screen already. None follows from what cannot
// be looked at.
func nextSteps(s *watch.Snapshot, e *watch.Entry, v *verdict.Verdict) []string {
	if !e.Unseen.IsZero() {
		return nil
	}
	return slices.DeleteFunc(s.Next(e, v), func(step string) bool { return strings.HasPrefix(step, "holdfast why ") })
}

// sentenceLines are the state and a sentence about it, in at most limit lines.
func (m *model) sentenceLines(v verdict.Verdict, says string, w, limit int) []string {
	p := m.paint
	word := p.State(v.State)
	head := 1 + text.Width(word) + 2
	parts := p.wrap(p.Safe(says), w-head)
	if len(parts) > limit {
		parts[limit-1] = strings.Join(parts[limit-1:], " ") // put cuts it
		parts = parts[:limit]
	}
	lines := make([]string, 0, limit)
	for i, part := range parts {
		l := p.line(w)
		if i == 0 {
			l.put(plain, " ").put(stateTone(v.State), word)
		}
		lines = append(lines, l.to(head).put(plain, part).String())
	}
	return lines
}

// overview is all that is known: the verdict, who, when it clears, why, what each original would do, what next.
func (m *model) overview(r *row, w int) []string {
	p, e := m.paint, r.entry
	v := e.Judge(m.now)
	word := p.State(v.State)
	head := p.line(w).put(plain, " ").put(stateTone(v.State), word)
	if v.Cause != "" {
		head.put(plain, "  "+p.Safe(v.Cause))
	}
	if marks := m.marks(r, v); marks != "" {
		head.put(plain, "  "+marks)
	}
	lines := []string{head.String()}
	for _, s := range p.wrap(p.Safe(sentence(e, v, m.now)), w-2) {
		lines = append(lines, p.line(w).put(plain, " "+s).String())
	}
	lines = append(lines, "")
	fact := func(name, s string) {
		if s != "" {
			lines = append(lines, m.factLines(name, p.Safe(s), w, plain)...)
		}
	}
	if own := m.hold(e); own != nil {
		if own.ref.kind == watch.Lock {
			fact("held", "by this screen, which beats until R, quit or a signal")
		} else {
			fact("held", fmt.Sprintf("by this screen, epoch %d; renewed until R, quit or a signal", own.epoch))
		}
	}
	facts := Facts(m.snap, e, m.now)
	if step := m.tokenStep(r); isLitter(e) && step != "" {
		at := 0 // behind when it clears, as with all else
		if facts[0].Head == "clears" {
			at = 1
		}
		facts = slices.Insert(facts, at, Fact{"next", step})
	}
	for _, f := range facts {
		switch f.Head {
		case "":
			lines = append(lines, "", p.line(w).put(plain, " ").put(strong, f.Says).String())
		case skipped:
			lines = append(lines, m.factLines(f.Head, p.Safe(f.Says), w, faint)...)
		default:
			step := ""
			if f.Head == "token" {
				step = m.tokenStep(r)
			}
			if says, why, ok := strings.Cut(f.Says, "; a person must decide"); ok && step != "" {
				f.Says = says + why + "; B removes it"
			}
			fact(f.Head, f.Says)
			fact("next", step)
		}
	}
	return lines
}
