package tui

import (
	"cmp"
	"slices"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// Ten times a second one entry of ten thousand is another one. Entries that did not change are the same pointers as in the
// snapshot before, so their rows stay, and with them their places in the list: what is computed, compared or made anew is
// about those that changed.

// tally counts rows by how wide something of theirs is, so that the widest is still known when one goes.
type tally [128]int

func (t *tally) add(width, n int) { t[min(width, len(t)-1)] += n }

// longest is the greatest width that is counted, at most the tally's last.
func (t *tally) longest() int {
	for width, n := range slices.Backward(t[:]) {
		if n > 0 {
			return width
		}
	}
	return 0
}

// follow makes m.all the rows of the snapshot that is drawn, older being the one that was drawn before; nil: none was. It
// returns the rows that are new and those that are gone.
func (m *model) follow(older *watch.Snapshot) (came, gone []*row) {
	var before []*watch.Entry
	if older != nil {
		before = older.Entries
	}
	now := m.snap.Entries
	all := slices.Grow(m.spare[:0], len(now))
	for i, j := 0, 0; i < len(before) || j < len(now); {
		from := i
		for i < len(before) && j < len(now) && before[i] == now[j] {
			i, j = i+1, j+1
		}
		all = append(all, m.all[from:i]...)
		// One that comes back at another place is gone here and new there: the order is only what makes that rare.
		c := 0
		switch {
		case i < len(before) && j < len(now):
			c = m.order(before[i], now[j])
		case i < len(before):
			c = -1
		case j < len(now):
			c = 1
		default:
			continue
		}
		if c <= 0 {
			gone = append(gone, m.all[i])
			i++
		}
		if c >= 0 {
			r := m.rowOf(now[j])
			came, all = append(came, r), append(all, r)
			j++
		}
	}
	m.all, m.spare = all, m.all
	clear(m.spare) // it would keep what is gone
	for _, r := range gone {
		m.count(r, -1)
		delete(m.index, r.ref())
	}
	if m.index == nil {
		m.index, m.litter = make(map[ref]*row, len(came)), map[string][]*row{}
	}
	for _, r := range came {
		m.count(r, 1)
		m.index[r.ref()] = r
	}
	m.follows(came, gone)
	return came, gone
}

// order is the one that entries have in a snapshot.
func (m *model) order(a, b *watch.Entry) int {
	c := 0
	if a.Root != b.Root {
		c = cmp.Compare(m.rootNumber(a.Root), m.rootNumber(b.Root))
	}
	return cmp.Or(c, cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path))
}

func (m *model) rootNumber(path string) int {
	return slices.IndexFunc(m.snap.Roots, func(r watch.Root) bool { return r.Path == path })
}

// rowOf makes the row of an entry.
func (m *model) rowOf(e *watch.Entry) *row {
	r := &row{
		entry: e, holder: e.Holder(), name: m.paint.Safe(e.Title()), rank: e.Urgency(), beat: e.Beat(), judged: m.snap.Time,
	}
	r.words = holderWords(r.holder)
	r.wordsWidth = text.Width(m.paint.Safe(r.words))
	m.own(r)
	return r
}

// someTime is how long an entry has been held where that is only measured: nearly all such times are as wide as its.
const someTime = 10 * time.Minute

// own sets what of a row depends on what this screen holds.
func (m *model) own(r *row) {
	r.mine = m.isMine(r.entry)
	flags := r.entry.Verdict.Flags
	if r.mine {
		flags |= verdict.Mine
	}
	r.nameWidth = text.Width(r.name) + 1 + text.Width(m.marksOf(r.entry, flags, someTime))
}

// ownAll is own for all rows, when what is held changed.
func (m *model) ownAll() {
	for _, r := range m.all {
		was := r.nameWidth
		m.own(r)
		m.names.add(was, -1)
		m.names.add(r.nameWidth, 1)
	}
	m.longestName = m.names.longest()
}

// count counts a row in, or out with n = -1.
func (m *model) count(r *row, n int) {
	m.names.add(r.nameWidth, n)
	m.holders.add(r.wordsWidth, n)
	if !isLitter(r.entry) {
		return
	}
	of := r.entry.LockOf
	if n > 0 {
		m.litter[of] = append(m.litter[of], r)
		return
	}
	rest := slices.DeleteFunc(m.litter[of], func(other *row) bool { return other == r })
	if m.litter[of] = rest; len(rest) == 0 {
		delete(m.litter, of)
	}
}

// follows brings up to date what is told of all entries together.
func (m *model) follows(came, gone []*row) {
	m.longestName, m.longestHolder = m.names.longest(), m.holders.longest()
	m.followStuck(came, gone)
	if !m.change.IsZero() && slices.ContainsFunc(gone, func(r *row) bool { return r.entry.Verdict.Changes.Equal(m.change) }) {
		m.change, came = time.Time{}, m.all
	}
	for _, r := range came {
		if at := r.entry.Verdict.Changes; !at.IsZero() && (m.change.IsZero() || at.Before(m.change)) {
			m.change = at
		}
	}
}

// fewChanges is how many of what is stuck may each be looked for among all of it.
const fewChanges = 100

// followStuck brings m.stuck up to date. What is stuck and changes is mostly as urgent as it was, and keeps its place.
func (m *model) followStuck(came, gone []*row) {
	stays := len(came)+len(gone) <= fewChanges
	n := 0
	for _, r := range gone {
		if !isStuck(r.entry) {
			continue
		}
		n++
		if next := m.index[r.ref()]; stays && next != nil && isStuck(next.entry) && next.rank == r.rank && next.entry.Title() == r.entry.Title() {
			m.stuck[slices.Index(m.stuck, r.entry)] = next.entry
		} else {
			stays = false
		}
	}
	for _, r := range came {
		if isStuck(r.entry) {
			n--
		}
	}
	if !stays || n != 0 {
		m.stuck = m.snap.Stuck()
	}
}

// refill chooses the rows that the list shows anew, and sorts them.
func (m *model) refill() {
	m.parts = m.filter.wantsParts() || m.shows == litterRows
	m.refit(m.all, nil)
}

// refit makes m.rows those of all rows that the view and the filter show, in order, where that can be another question for
// the rows that came than it was, or is none any more for those that are gone. The cursor stays on its entry: when rows
// move, it moves along, at the same height on the screen; when its entry is gone, it stays where that was.
func (m *model) refit(came, gone []*row) {
	var in, out []*row
	fit := func(r *row) {
		r.part = isLitter(r.entry) && m.index[ref{watch.Lock, r.entry.LockOf}] != nil
		was := r.shown
		r.shown = (!r.part || m.parts) && m.inView(r) && m.filter.keeps(r, m.now)
		switch {
		case r.shown && !was:
			in = append(in, r)
		case was && !r.shown:
			out = append(out, r)
		}
	}
	for _, r := range gone {
		if r.shown {
			r.shown = false
			out = append(out, r)
		}
	}
	if m.filter.timed {
		came = m.all
	}
	for _, r := range came {
		fit(r)
	}
	if len(m.litter) > 0 && len(came) < len(m.all) {
		// A token is told with its lock, while that is there.
		for _, rows := range [...][]*row{came, gone} {
			for _, r := range rows {
				if r.entry.Kind != watch.Lock {
					continue
				}
				for _, part := range m.litter[r.entry.Path] {
					fit(part)
				}
			}
		}
	}
	m.place(in, out)

	parts, listed := 0, 0
	m.tokens = 0
	for _, rows := range m.litter {
		for _, r := range rows {
			if r.entry.Kind == watch.Token {
				m.tokens++
			}
			if r.part {
				parts++
				if r.shown {
					listed++
				}
			}
		}
	}
	m.total = len(m.all) - parts
	m.unshown = m.total - (len(m.rows) - listed)

	was := m.cursor
	if r := m.index[m.selected]; r != nil && r.shown {
		m.cursor = m.placeOf(r)
		m.top += m.cursor - was
	}
	m.cursor = max(0, min(m.cursor, len(m.rows)-1))
	m.selected = ref{}
	if r := m.current(); r != nil {
		m.selected = r.ref()
	}
}

// ordering is how rows are sorted.
type ordering struct {
	by       Column
	reversed bool
	problems bool // what is stuck comes first
}

// place puts rows into the list and takes others out of it, and sorts it anew where its order is another one than it was.
func (m *model) place(in, out []*row) {
	order := ordering{m.sort, m.reversed, m.shows == problemRows}
	if order == m.sorted && len(in)+len(out) <= len(m.rows)/4 {
		m.takeOut(out)
		m.putIn(in)
		return
	}
	m.sorted = order
	m.rows = append(slices.DeleteFunc(m.rows, func(r *row) bool { return !r.shown }), in...)
	slices.SortFunc(m.rows, m.compare)
}

// placeOf is where in the list a row is that is in it.
func (m *model) placeOf(r *row) int {
	if at, found := slices.BinarySearchFunc(m.rows, r, m.compare); found && m.rows[at] == r {
		return at
	}
	return slices.Index(m.rows, r)
}

// takeOut takes rows out of the list.
func (m *model) takeOut(rows []*row) {
	if len(rows) == 0 {
		return
	}
	places := make([]int, len(rows), len(rows)+1)
	for i, r := range rows {
		places[i] = m.placeOf(r)
	}
	slices.Sort(places)
	places = append(places, len(m.rows))
	end := places[0]
	for i, at := range places[:len(rows)] {
		end += copy(m.rows[end:], m.rows[at+1:places[i+1]])
	}
	clear(m.rows[end:])
	m.rows = m.rows[:end]
}

// putIn puts rows into the list, each at its place.
func (m *model) putIn(rows []*row) {
	slices.SortFunc(rows, m.compare)
	end := len(m.rows)
	m.rows = append(m.rows, rows...)
	for i, r := range slices.Backward(rows) {
		at, _ := slices.BinarySearchFunc(m.rows[:end], r, m.compare)
		copy(m.rows[at+i+1:], m.rows[at:end])
		m.rows[at+i] = r
		end = at
	}
}
