package tui

import (
	"fmt"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
)

// helpLines are the keys, from the key map, and what the states mean.
func (m *model) helpLines(w int) []string {
	p := m.paint
	var lines []string
	for _, g := range m.keys {
		lines = append(lines, p.line(w).put(plain, " ").put(strong, g.title).String())
		for _, b := range g.bindings {
			h := b.Help()
			lines = append(lines, m.factLines(h.Key, h.Desc, w, plain)...)
		}
		lines = append(lines, "")
	}
	lines = append(lines, p.line(w).put(plain, " ").put(strong, "States").String())
	for s, means := range stateHelp() {
		if means == "" {
			continue
		}
		state := verdict.State(s)
		l := p.line(w).put(plain, "   ").cell(stateTone(state), p.Symbol(state)+" "+text.Word(state), 13)
		for i, part := range p.wrap(means, w-17) {
			if i > 0 {
				l = p.line(w).to(16)
			}
			lines = append(lines, l.put(plain, part).String())
		}
	}
	lines = append(lines, "")
	for _, s := range p.wrap("The header counts leases and locks, and tokens and temps that have no lock, as entries; "+
		"those beside a lock are told with it.", w-2) {
		lines = append(lines, p.line(w).put(plain, " "+s).String())
	}
	lines = append(lines, "", p.line(w).put(plain, " ").put(strong, "Marks behind the name").String())
	for _, mark := range [][2]string{
		{"*", "this screen holds it"},
		{p.Marks(verdict.IsBlocked, 0), "blocked: nobody can take it"},
		{"clock", "a time that cannot be right"},
		{"held 2h", "for over ten minutes: a note, no alarm"},
		{"legacy", "alive by its pid alone"},
		{"epoch", "its counter is damaged or behind"},
		{"stopped", "it ran out while its holder is stopped"},
		{UnseenMark, "its place cannot be looked at any more"},
	} {
		lines = append(lines, m.factLines(mark[0], mark[1], w, plain)...)
	}
	lines = append(lines, "")
	for _, s := range p.wrap("Stuck is what is blocked, and a lock whose holder is stopped: all else clears by itself. "+
		"A plan listens to keys once it has been open for 0.4 s.", w-2) {
		lines = append(lines, p.line(w).put(plain, " "+s).String())
	}
	return lines
}

func stateHelp() [verdict.Litter + 1]string {
	return [verdict.Litter + 1]string{
		verdict.Live:       "held; its holder runs and beats",
		verdict.Late:       "held; its holder runs, but its beat is overdue",
		verdict.Stopped:    "its holder is stopped, traced or frozen",
		verdict.Remote:     "held on another machine, which cannot be checked from here",
		verdict.Unknown:    "whether its holder lives cannot be told from here",
		verdict.Expired:    "no beat for too long; its holder is not proven dead",
		verdict.Dead:       "its holder is proven dead",
		verdict.Unreadable: "no record can be read there",
		verdict.Free:       "nobody holds it",
	}
}

func (m *model) helpPane(l layout) []string {
	lines := m.helpLines(l.w)
	h := l.body.h - 1
	top := max(0, min(m.helpTop, len(lines)-h))
	note := ""
	if len(lines) > h {
		note = fmt.Sprintf("%d%%", (top+h)*100/len(lines))
		lines = lines[top:min(len(lines), top+h)]
	}
	return fit(append([]string{m.paint.rule(l.w, "help", note)}, lines...), l.body.h)
}
