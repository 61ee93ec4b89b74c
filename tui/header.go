package tui

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/fslock"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/tui/text"
	"holdfast/watch"
)

// headerLine says what is looked at, how, and when.
func (m *model) headerLine() string {
	var entries, number, tokens, held string
	if m.snap != nil {
		entries, number = text.Count(m.total, "entry"), strconv.Itoa(m.total)
		if m.tokens > 0 {
			tokens = text.Count(m.tokens, "token")
		}
	}
	if n := len(m.held); n > 0 {
		held = fmt.Sprintf("%d held", n)
	}
	held = strings.TrimSpace(held + " " + m.markedWords())
	mode := "RW"
	if m.readOnly {
		mode = "RO"
	}
	word, clock := m.watchWord(), m.now.Format("15:04")

	// What is left out first where there is no room; how fresh the picture is and what is held stay.
	l := m.paint.line(m.w).put(strong, " holdfast")
	for _, c := range []struct {
		right []string
		roots bool
	}{
		{[]string{entries, tokens, held, word, mode, clock}, true},
		{[]string{entries, tokens, held, word, mode}, true},
		{[]string{entries, held, word, mode}, true},
		{[]string{entries, tokens, held, word, mode, clock}, false},
		{[]string{entries, tokens, held, word, mode}, false},
		{[]string{entries, held, word, mode}, false},
		{[]string{number, held, word, mode}, false},
		{[]string{held, word, mode}, false},
	} {
		end := strings.Join(slices.DeleteFunc(c.right, func(s string) bool { return s == "" }), " ") + " "
		room := m.w - l.used - 1 - text.Width(end)
		roots := ""
		if c.roots && m.snap != nil {
			if roots = m.roots(room - 2); roots == "" && len(m.snap.Roots) > 0 {
				continue
			}
		}
		if room < 0 {
			continue
		}
		if roots != "" {
			l.put(plain, "  ").put(faint, roots)
		}
		return l.right(plain, end).String()
	}
	return l.String()
}

// leastRoot is what is left of a root's path where there is no room for it, in cells.
const leastRoot = 12

// roots are the paths of the roots in w cells, each cut alike; "" where too little would be left of each.
func (m *model) roots(w int) string {
	n := len(m.snap.Roots)
	paths := make([]string, n)
	for i := range m.snap.Roots {
		paths[i] = m.short(m.snap.Roots[i].Path)
	}
	all := strings.Join(paths, " ")
	if text.Width(all) <= w {
		return all
	}
	each := (w - n + 1) / max(1, n)
	if each < leastRoot {
		return ""
	}
	for i := range paths {
		paths[i] = m.paint.CutMiddle(paths[i], each)
	}
	return strings.Join(paths, " ")
}

// short is a path with ~ for the home directory, made safe.
func (m *model) short(path string) string {
	if m.home != "" && m.home != string(filepath.Separator) {
		if rest, ok := strings.CutPrefix(path, m.home); ok && (rest == "" || rest[0] == filepath.Separator) {
			path = "~" + rest
		}
	}
	return m.paint.Safe(path)
}

// watchWord says how fresh the picture is kept.
func (m *model) watchWord() string {
	switch {
	case m.paused:
		return fmt.Sprintf("PAUSED +%d", m.hidden)
	case m.snap == nil:
		return ""
	case m.stale():
		return "STALE " + text.Age(m.now.Sub(m.snap.Time))
	}
	word := "WAITING"
	for _, r := range m.snap.Roots {
		switch {
		case hidden(m.snap, r.Path):
			if word == "WAITING" {
				word = "UNSEEN"
			}
		case r.Watch == "poll":
			return "POLL " + r.Every.String()
		case r.Watch == "inotify":
			word = r.Watch
		case r.Watch != "" && r.Watch != "none" && word == "WAITING":
			word = m.paint.Safe(r.Watch)
		}
	}
	return word
}

// hidden reports whether a root cannot be looked at at all.
func hidden(s *watch.Snapshot, root string) bool {
	return slices.ContainsFunc(s.Errors, func(e watch.EntryError) bool { return e.Path == root })
}

// headLine answers the first question.
func (m *model) headLine() string {
	l := m.paint.line(m.w).put(plain, " ")
	switch {
	case m.snap == nil && m.ended:
		return l.put(bad, "Nothing could be looked at.").String()
	case m.snap == nil:
		l.put(plain, "Looking"+m.paint.Ellipsis())
		if m.soFar > 0 {
			l.put(plain, " "+text.Count(m.soFar, "entry")+" so far")
		}
		return l.String()
	}
	if n := len(m.snap.Errors); n > 0 && len(m.stuck) == 0 {
		// What could not be seen may be stuck.
		return l.put(bad, m.paint.Cut(text.Count(n, "place")+" could not be looked at. Nothing else is stuck.", m.w-2)).String()
	}
	missing := 0 // of what somebody asked for: what is only looked for need not be there
	for _, r := range m.snap.Roots {
		if r.Kind == "missing" && !watch.Discovered(r) {
			missing++
		}
	}
	switch {
	case missing > 0 && len(m.stuck) == 0 && missing == len(m.snap.Roots):
		return l.put(plain, "Nothing is there yet: "+text.Count(missing, "root")+" missing.").String()
	case missing > 0 && len(m.stuck) == 0:
		return l.put(plain, "Nothing is stuck in what is there; "+text.Count(missing, "root")+" missing.").String()
	}
	tone := good
	if len(m.stuck) > 0 {
		tone = bad
	}
	return l.put(tone, Headline(m.paint.Style, m.stuck, m.stuckHint(), m.w-1)).String()
}

// stuckHint is the key that comes next to whoever reads that something is stuck; "": none does more than is seen.
func (m *model) stuckHint() string {
	if len(m.stuck) == 0 {
		return ""
	}
	only, hides := len(m.stuck) == 1, "The filter hides them: esc."
	if only {
		hides = "The filter hides it: esc."
	}
	listed := slices.ContainsFunc(m.stuck, func(e *watch.Entry) bool {
		r := m.index[refOf(e)]
		return r != nil && r.shown
	})
	switch onIt := m.selected == refOf(m.stuck[0]); {
	case only && onIt && m.tokenStep(m.current()) != "":
		return "B shows how."
	case only && onIt && !m.zoomed:
		return "enter shows why."
	case only && onIt:
		return ""
	case !listed && m.filter.text != "":
		return hides
	case !listed && m.shows == problemRows, m.shows == problemRows && !only:
		return ""
	case m.shows == problemRows:
		return "g goes to it."
	case only:
		return "! goes to it."
	default:
		return "! shows them."
	}
}

// What the headline leaves of a name before something else is left out: how many more there are, the end of the reason,
// the hint.
const (
	nameBeforeMore = 26
	nameBeforeWhy  = 16
	nameBeforeHint = 8
	leastWhy       = 12
)

// Headline says in one line of safe text whether anything is stuck, which is what Snapshot.Stuck returns. hint is
// what to do about it. Where the line is longer than w cells, the name in it is cut first, then it is left out how many
// more there are, then the end of the reason, and the hint last; w is 0 where any length will do.
func Headline(st text.Style, stuck []*watch.Entry, hint string, w int) string {
	if len(stuck) == 0 {
		return "Nothing is stuck."
	}
	first := stuck[0]
	why := "blocked by " + first.Verdict.Claimable.By
	if pid := first.PID(); pid != 0 && first.Verdict.Claimable.When != verdict.Blocked {
		why = fmt.Sprintf("pid %d is stopped", pid)
	}
	why = st.Safe(why)
	lead, more := fmt.Sprintf("%d stuck: ", len(stuck)), ""
	if n := len(stuck) - 1; n > 0 {
		more = fmt.Sprintf(" And %d more.", n)
	}
	if hint != "" {
		hint = " " + hint
	}
	place := placeIn(st, first, 0)
	if w == 0 {
		return lead + place + ", " + why + "." + more + hint
	}
	rest := w - text.Width(lead+", .")
	least, says, end := nameBeforeHint, leastWhy, ""
	for _, c := range []struct {
		least, says int // cells of the name and of the reason
		end         string
	}{
		{nameBeforeMore, text.Width(why), more + hint},
		{nameBeforeWhy, text.Width(why), hint},
		{nameBeforeWhy, leastWhy, hint},
		{nameBeforeHint, leastWhy, hint},
	} {
		if rest-text.Width(c.end) >= min(c.least, text.Width(place))+c.says {
			least, says, end = c.least, c.says, c.end
			break
		}
	}
	rest -= text.Width(end)
	says = max(says, min(text.Width(why), rest-min(least, text.Width(place))))
	s := lead + placeIn(st, first, max(nameBeforeHint, rest-says)) + ", " + st.Cut(why, says)
	if text.Width(why) <= says {
		s += "."
	}
	return s + end
}

// placeIn is where an entry is, and the name that a person knows: "inspect/8eb3…/writer.lease (web-app)". It is safe
// text of at most w cells, 0 for any number. The last element is what is cut last.
func placeIn(st text.Style, e *watch.Entry, w int) string {
	const separator = string(filepath.Separator)
	elements := strings.Split(e.Place(), separator)
	last := st.Safe(elements[len(elements)-1])
	for i, s := range elements[:len(elements)-1] {
		if elements[i] = st.Safe(s); isHash(s) {
			elements[i] = s[:shownHash] + st.Ellipsis()
		}
	}
	place, name := strings.Join(append(elements[:len(elements)-1], last), separator), ""
	if e.Name != "" && e.Name != e.Place() {
		name = " (" + st.Safe(e.Name) + ")"
	}
	short := text.Width(st.Ellipsis() + separator + last) // the least that says what it is
	switch room := w - text.Width(name); {
	case w == 0 || text.Width(place) <= room:
		return place + name
	case len(elements) > 1 && short < room:
		return text.Head(place, room-short) + st.Ellipsis() + separator + last + name
	case text.Width(place) <= w:
		return place
	case len(elements) > 1 && short <= w:
		return text.Head(place, w-short) + st.Ellipsis() + separator + last
	default:
		return st.CutMiddle(place, w)
	}
}

// shownHash is how many digits of a hash are enough to know it by.
const shownHash = 4

// isHash reports whether an element of a path is a key that a program computed: nobody reads it to its end.
func isHash(s string) bool {
	return len(s) >= 12 && strings.Trim(s, "0123456789abcdef") == ""
}

// maxLostName is how much of a name the line about a loss has room for.
const maxLostName = 16

// notices are the lines below the headline: what was lost, and how the picture is not whole.
func (m *model) notices() []note {
	var list []note
	for _, lost := range m.losses {
		list = append(list, note{m.lossWords(lost), true})
	}
	if m.ended {
		reason := "it ended"
		if m.reason != nil {
			reason = m.reason.Error()
		}
		list = append(list, note{m.paint.Safe("The watcher has stopped, so this picture is old: " + reason), true})
	}
	if !m.ended && m.stale() {
		list = append(list, note{"The watcher brings nothing new, so this picture is old: a file system may not answer.", true})
	}
	if m.snap == nil {
		return m.withDemo(list)
	}
	// What could not be seen comes before what was chosen not to be, and that before what is only waited for: there may be
	// room for one line alone.
	if n := len(m.snap.Errors); n > 0 {
		first := m.snap.Errors[0]
		s := fmt.Sprintf("Cannot look at %s: %v", first.Path, first.Err)
		if n > 1 {
			s = fmt.Sprintf("Cannot look at %d places; the first is %s: %v", n, first.Path, first.Err)
		}
		list = append(list, note{m.paint.Safe(s), true})
	}
	if s := m.viewNote(); s != "" {
		list = append(list, note{s, false})
	}
	for i := range m.snap.Roots {
		r := &m.snap.Roots[i]
		switch {
		case r.Kind == "missing" && m.total == 0: // the empty list says so
		case r.Kind == "missing":
			list = append(list, note{"Waiting for " + m.short(r.Path) + m.paint.Safe(" ("+r.ChosenBy+"): it is not there"), false})
		case r.Reason != "":
			why := m.paint.Safe(" (" + r.Watch + "): " + r.Reason)
			path := m.paint.CutMiddle(m.short(r.Path), max(leastRoot, m.w-2-text.Width(why)))
			list = append(list, note{path + why, false})
		}
	}
	return m.withDemo(list)
}

// lossWords tell of a loss in safe text, what matters first: the end is cut on a narrow screen.
func (m *model) lossWords(lost loss) string {
	const must = "What relies on it must stop (esc)."
	id := m.lostName(lost)
	what := "Lost lease "
	if lost.ref.kind == watch.Lock {
		what = "Lost lock "
	}
	other, known := taker(lost.err)
	switch {
	case !known:
		why := strings.TrimPrefix(strings.TrimPrefix(lost.err.Error(), lease.ErrLost.Error()+": "), fslock.ErrLost.Error()+": ")
		return what + id + "; what relies on it must stop (esc): " + m.paint.Safe(why)
	case other == nil:
		return what + id + ": its file is gone. " + must
	default:
		to := fmt.Sprintf("%s%s to pid %d", what, id, other.PID)
		if host := other.Host; host != "" {
			to += " on " + m.paint.CutMiddle(m.paint.Safe(host), maxLostName)
		}
		return to + ". " + must
	}
}

func (m *model) lostName(lost loss) string {
	room := maxLostName
	if lost.ref.kind == watch.Lock {
		room = max(room, m.w/3) // locks have long names that begin and end alike
	}
	return m.paint.CutMiddle(m.paint.Safe(lost.name), room)
}

func (m *model) withDemo(list []note) []note {
	if m.demo != "" {
		list = append(list, note{m.paint.Safe(m.demo), false})
	}
	return list
}

func (m *model) noticeLine(n note) string {
	t := faint
	if n.bad {
		t = bad
	}
	return m.paint.line(m.w).put(plain, " ").put(t, n.text).String()
}

// verdictLine is the compact layout's whole detail: the sentence of the entry under the cursor.
func (m *model) verdictLine() string {
	l := m.paint.line(m.w).put(plain, " ")
	r := m.current()
	if r == nil {
		return l.String()
	}
	v := r.entry.Judge(m.now)
	return l.put(stateTone(v.State), m.paint.Symbol(v.State)+" ").put(plain, m.paint.Safe(sentence(r.entry, v, m.now))).String()
}

// footerLine is the line that is typed, or the keys.
func (m *model) footerLine() string {
	p := m.paint
	l := p.line(m.w).put(plain, " ")
	if m.palette != nil {
		return m.paletteLine()
	}
	if m.input != nil {
		before, behind := m.input.split()
		end := "enter keep  esc undo"
		tone := faint
		if m.input.err != nil {
			end, tone = p.Safe(m.input.err.Error()), bad
		}
		// The end of what is typed stays in sight, whatever its length.
		before, behind = p.Safe(before), p.Safe(behind)
		if room := m.w/2 - 4; text.Width(before) > room {
			before = p.Ellipsis() + text.Tail(before, room-1)
		}
		l.put(strong, "/").put(plain, before).put(strong, p.glyph(caretGlyph)).put(plain, behind)
		return l.put(plain, "  ").put(tone, end).String()
	}
	if m.dialog != nil && m.dialog.chunk {
		l.put(plain, chunkWords)
	}
	for _, h := range m.footerHints() {
		l.to(h.x).put(strong, h.key).put(plain, " "+h.says)
	}
	return l.right(plain, strings.TrimSpace(m.position())).String()
}

// footerHints are the keys that the footer has room for, each where it stands.
func (m *model) footerHints() []hint {
	const from = 1
	hints := fitting(m.hints(), m.w-from-text.Width(strings.TrimSpace(m.position()))-1)
	x := from
	for i := range hints {
		hints[i].x = x
		x += hints[i].width()
	}
	return hints
}

// maxNoteLines is how many lines a note may take: what an error says must not be cut where it matters.
const maxNoteLines = 3

// noteLines are what the last action came to; they lie over the end of the screen.
func (m *model) noteLines() []string {
	p := m.paint
	mark, t := "", plain
	if m.note.bad {
		mark, t = p.Symbol(verdict.Expired)+" ", bad
	}
	parts := p.wrap(mark+m.note.text, m.w-2)
	if len(parts) > maxNoteLines {
		parts[maxNoteLines-1] = strings.Join(parts[maxNoteLines-1:], " ") // put cuts it
		parts = parts[:maxNoteLines]
	}
	lines := make([]string, len(parts))
	for i, s := range parts {
		lines[i] = p.line(m.w).put(plain, " ").put(t, s).String()
	}
	return lines
}

// hint is a key and what it does, in a word.
type hint struct {
	key, says string
	press     string // the key that a click on it presses; "": none
	x         int    // where it begins in the footer
}

func (h hint) words() string { return h.key + " " + h.says }

// width is what it takes in the footer, with the space behind it.
func (h hint) width() int { return text.Width(h.words()) + 2 }

// fitting leaves out hints from the end until the rest fits; the last two, help and quit, go last.
func fitting(hints []hint, room int) []hint {
	width := 0
	for _, h := range hints {
		width += h.width()
	}
	for width-2 > room && len(hints) > 0 { // the last one needs no space behind it
		at := max(0, len(hints)-3)
		width -= hints[at].width()
		hints = slices.Delete(hints, at, at+1)
	}
	return hints
}

// hints are the keys that the footer shows, from the key map.
func (m *model) hints() []hint {
	switch {
	case m.dialog != nil:
		return nil
	case m.actions != nil:
		return []hint{{key: "j k", says: "choose"}, {key: "enter", says: "do", press: "enter"}, {key: "esc", says: "close", press: "esc"}}
	case m.help:
		return []hint{{key: "j k", says: "scroll"}, {key: "esc", says: "close", press: "esc"}}
	}
	var hints []hint
	if m.zoomed || m.focused {
		hints = append(hints, hint{key: "esc", says: "back", press: "esc"}, hint{key: "[ ]", says: "tab", press: "]"}, hint{key: "j k", says: "scroll"})
	}
	var acts, rest []hint // what can be done here comes first: the end is left out where there is no room
	for _, g := range m.keys {
		for _, b := range g.bindings {
			switch h := (hint{key: b.Help().Key, says: b.foot, press: b.Keys()[0]}); {
			case b.foot == "" || !m.offers(b.intent):
			case acting(b.intent) != "":
				acts = append(acts, h)
			default:
				rest = append(rest, h)
			}
		}
	}
	return append(append(hints, acts...), rest...)
}

// offers reports whether the footer shows the key: of those that change something, only what makes sense for the entry
// under the cursor.
func (m *model) offers(what intent) bool {
	switch what {
	case intentClaim, intentAcquire, intentRelease, intentBreak, intentSweep:
	case intentProblems:
		return m.shows != litterRows // its room is wanted there
	default:
		return true
	}
	r := m.current()
	if m.readOnly || r == nil {
		return false
	}
	if what == intentSweep {
		return m.shows == litterRows
	}
	if rows := m.markedRows(); len(rows) > 0 && (what == intentBreak || what == intentRelease) {
		return slices.ContainsFunc(rows, func(r *row) bool { return m.whyNotHere(what, r) == "" })
	}
	return m.whyNotHere(what, r) == ""
}

// position says where the cursor is and what the list leaves out.
func (m *model) position() string {
	s := fmt.Sprintf("%d/%d ", min(m.cursor+1, len(m.rows)), len(m.rows))
	if m.shows != allRows {
		s = m.shows.String() + " " + s
	}
	if m.filter.text != "" {
		s = "/" + m.paint.Cut(m.paint.Safe(m.filter.text), max(8, m.w/4)) + " " + s
	}
	return s
}
