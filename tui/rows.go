package tui

import (
	"cmp"
	"slices"
	"strings"

	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// ref is the identity of an entry: what the cursor, a dialog and a hold refer to, never a row's number.
type ref struct {
	kind watch.Kind
	path string
}

// row is an entry as the list has it. It belongs to one snapshot.
type row struct {
	entry  *watch.Entry
	holder *verdict.Holder
	name   string // safe
	rank   int
	mine   bool
	hay    string // lower-cased, filled on first use
}

func (r *row) ref() ref { return refOf(r.entry) }

func refOf(e *watch.Entry) ref { return ref{e.Kind, e.Path} }

// haystack is what the words of a filter are looked for in.
func (r *row) haystack() string {
	if r.hay == "" {
		parts := []string{r.name, r.entry.Path, r.entry.ID, r.entry.Kind.String()}
		if h := r.holder; h != nil {
			parts = append(parts, h.Host, h.Channel, h.Version, h.OwnerBootID, h.BlockID)
		}
		r.hay = strings.ToLower(strings.Join(parts, "\n"))
	}
	return r.hay
}

// rowsOf makes a row of every entry, and says how many tokens there are.
func rowsOf(s *watch.Snapshot, style *paint) (rows []*row, tokens int) {
	rows = make([]*row, len(s.Entries))
	block := make([]row, len(s.Entries))
	for i, e := range s.Entries {
		r := &block[i]
		r.entry, r.holder, r.name, r.rank = e, e.Holder(), style.Safe(e.Title()), e.Urgency()
		if e.Kind == watch.Token {
			tokens++
		}
		rows[i] = r
	}
	return rows, tokens
}

// refill chooses and sorts the rows that the list shows, and keeps the cursor on its entry: when rows move, it
// moves along, at the same height on the screen; when its entry is gone, it stays where that was.
func (m *model) refill() {
	locks := m.locksWithParts()
	parts := m.filter.wantsParts() || m.shows == litterRows
	m.rows, m.total, m.unshown = m.rows[:0], 0, 0
	for _, r := range m.all {
		part := isLitter(r.entry) && locks[r.entry.LockOf]
		if !part {
			m.total++
		}
		r.mine = m.isMine(r.entry)
		switch {
		case part && !parts: // told in the detail of its lock
		case m.inView(r) && m.filter.keeps(r, m.now):
			m.rows = append(m.rows, r)
		case !part:
			m.unshown++
		}
	}
	slices.SortFunc(m.rows, m.compare)

	was := m.cursor
	if at := slices.IndexFunc(m.rows, func(r *row) bool { return r.ref() == m.selected }); at >= 0 {
		m.cursor = at
		m.top += at - was
	}
	m.cursor = max(0, min(m.cursor, len(m.rows)-1))
	m.selected = ref{}
	if r := m.current(); r != nil {
		m.selected = r.ref()
	}
}

// locksWithParts are the paths of locks, if there is any token or temp to be told with one.
func (m *model) locksWithParts() map[string]bool {
	wanted := map[string]bool{}
	for _, r := range m.all {
		if of := r.entry.LockOf; of != "" {
			wanted[of] = false
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	for _, r := range m.all {
		if r.entry.Kind == watch.Lock {
			if _, ok := wanted[r.entry.Path]; ok {
				wanted[r.entry.Path] = true
			}
		}
	}
	return wanted
}

// current is the row under the cursor, nil when the list is empty.
func (m *model) current() *row {
	if m.cursor < 0 || m.cursor >= len(m.rows) {
		return nil
	}
	return m.rows[m.cursor]
}

// find returns the entry in the newest snapshot, shown or not.
func (m *model) find(want ref) *watch.Entry {
	if m.fresh == nil {
		return nil
	}
	for _, e := range m.fresh.Entries {
		if refOf(e) == want {
			return e
		}
	}
	return nil
}

// byUrgency is the order in which things want to be looked at.
func byUrgency(a, b *row) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.name, b.name),
		cmp.Compare(a.entry.Path, b.entry.Path), cmp.Compare(a.entry.Kind, b.entry.Kind))
}

func (m *model) compare(a, b *row) int {
	c := m.compareBy(a, b)
	if m.reversed {
		c = -c
	}
	if c != 0 {
		return c
	}
	return byUrgency(a, b)
}

func (m *model) compareBy(a, b *row) int {
	switch m.sort {
	case ColState:
		return cmp.Compare(a.rank, b.rank)
	case ColName:
		return cmp.Compare(a.name, b.name)
	case ColBeat:
		return b.entry.Beat().Compare(a.entry.Beat()) // the shortest age first
	case ColLeft:
		return compareLeft(a.entry.Verdict.Claimable, b.entry.Verdict.Claimable)
	case ColHolder:
		return cmp.Compare(holderWords(a.holder), holderWords(b.holder))
	case ColPID:
		return cmp.Compare(a.who().PID, b.who().PID)
	case ColKind:
		return cmp.Compare(a.entry.Kind, b.entry.Kind)
	case ColHost:
		return cmp.Compare(a.who().Host, b.who().Host)
	case ColAge:
		return b.who().Acquired.Compare(a.who().Acquired)
	case ColEpoch:
		return cmp.Compare(a.entry.Epoch, b.entry.Epoch)
	case columns:
	}
	return 0
}

// who is the holder, or nobody.
func (r *row) who() verdict.Holder {
	if r.holder == nil {
		return verdict.Holder{}
	}
	return *r.holder
}

// compareLeft puts what can be had soonest first, and what is blocked last.
func compareLeft(a, b verdict.Claimable) int {
	return cmp.Or(cmp.Compare(b.When, a.When), a.At.Compare(b.At))
}
