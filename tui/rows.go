package tui

import (
	"cmp"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// ref is the identity of an entry: what the cursor, a dialog and a hold refer to, never a row's number.
type ref struct {
	kind watch.Kind
	path string
}

// row is an entry as the list has it. It is there for as long as its entry is, from snapshot to snapshot.
type row struct {
	entry  *watch.Entry
	holder *verdict.Holder
	beat   time.Time // of the entry
	judged time.Time // when the entry's verdict was so
	name   string    // safe
	words  string    // of the holder, not made safe
	hay    string    // lower-cased, filled on first use
	rank   int

	nameWidth  int // with its marks, in cells
	wordsWidth int // in cells

	mine  bool
	part  bool // of a lock that is there: told with it
	shown bool // in the list
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

// current is the row under the cursor, nil when the list is empty.
func (m *model) current() *row {
	if m.cursor < 0 || m.cursor >= len(m.rows) {
		return nil
	}
	return m.rows[m.cursor]
}

// find returns the entry in the newest snapshot, shown or not.
func (m *model) find(want ref) *watch.Entry {
	switch m.fresh {
	case nil:
		return nil
	case m.snap:
		if r := m.index[want]; r != nil {
			return r.entry
		}
		return nil
	}
	for _, e := range m.fresh.Entries { // paused
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
		return cmp.Or(m.stuckFirst(a, b), cmp.Compare(a.rank, b.rank))
	case ColName:
		return cmp.Compare(a.name, b.name)
	case ColBeat:
		return b.beat.Compare(a.beat) // the shortest age first
	case ColLeft:
		return compareLeft(a.entry.Verdict.Claimable, b.entry.Verdict.Claimable)
	case ColHolder:
		return cmp.Compare(a.words, b.words)
	case ColPID:
		return cmp.Compare(a.entry.PID(), b.entry.PID())
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

// stands reports whether the entry's verdict is, but for its words, what it is judged to be at now.
func (r *row) stands(now time.Time) bool {
	changes := r.entry.Verdict.Changes
	return !now.Before(r.judged) && (changes.IsZero() || now.Before(changes)) && r.entry.Unseen.IsZero()
}

// verdictAt is the verdict on the entry at now, its words aside: a list of many does not judge anew what stands.
func (r *row) verdictAt(now time.Time) verdict.Verdict {
	if r.stands(now) {
		return r.entry.Verdict
	}
	return r.entry.Judge(now)
}

// stateAt is the state of the entry at now.
func (r *row) stateAt(now time.Time) verdict.State {
	if r.stands(now) {
		return r.entry.Verdict.State
	}
	return r.entry.Judge(now).State
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
