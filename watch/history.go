package watch

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/fslock/verdict"
)

// What is kept of an entry's past at most.
const (
	maxBeats = 64
	maxSeen  = 16          // of holders, epochs and states each
	keepGone = time.Minute // how long it is kept of an entry that is not there
	maxGone  = 1024        // of how many such entries
)

// History is what Run has seen of one entry, each list oldest first and without its oldest elements where there were
// too many: 64 beats, 16 of all else. What came and went between two snapshots is not in it.
type History struct {
	Beats   []time.Time // when holders were last heard of, whoever they were
	Holders []HolderAt
	Epochs  []EpochAt // leases
	States  []StateAt
}

// HolderAt is a holder, and when it was first seen. One that came back is there again.
type HolderAt struct {
	Time   time.Time
	Holder verdict.Holder // as it was seen first
}

// EpochAt is an epoch, and when it was first seen.
type EpochAt struct {
	Time  time.Time
	Epoch uint64
}

// StateAt is a state with its cause, and since when it is seen.
type StateAt struct {
	Time  time.Time
	State verdict.State
	Cause string
}

// History returns what Run has seen of a lease, lock or token since this Watcher was made: nothing for a temp, and for
// what was not there for a minute. It includes the snapshot that is being emitted, and may be ahead of one that is kept.
// It can be called while Run goes on, also from emit; the lists belong to the caller.
func (w *Watcher) History(kind Kind, path string) History {
	return w.past.of(key{kind, path}, time.Now())
}

// past is the histories of all entries.
type past struct {
	mu   sync.Mutex
	all  map[key]*trail
	gone map[key]time.Time // of which the entry is not there, since when
	last []*Entry          // what was noted last
}

// trail is the history of one entry as it goes on.
type trail struct {
	History

	held bool // somebody held it at the last look
}

func (p *past) of(k key, now time.Time) History {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.all[k]
	if t == nil {
		return History{}
	}
	if at, ok := p.gone[k]; ok && now.Sub(at) > keepGone {
		return History{}
	}
	return History{
		Beats: slices.Clone(t.Beats), Holders: slices.Clone(t.Holders),
		Epochs: slices.Clone(t.Epochs), States: slices.Clone(t.States),
	}
}

// note takes in a snapshot. What says the same in the same place as in the last one costs a comparison.
func (p *past) note(s *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all, p.gone = make(map[key]*trail), make(map[key]time.Time)
	}
	moved := len(p.last) != len(s.Entries)
	for i, e := range s.Entries {
		same := false
		if i < len(p.last) {
			was := p.last[i]
			same = keyOf(was) == keyOf(e)
			moved = moved || !same
			same = same && sameContent(was, e) && was.Verdict.State == e.Verdict.State &&
				was.Verdict.Cause == e.Verdict.Cause && was.Epoch == e.Epoch
		}
		if same || e.Kind == Temp {
			continue
		}
		k := keyOf(e)
		t := p.all[k]
		if t == nil {
			t = &trail{}
			p.all[k] = t
		} else if at, ok := p.gone[k]; ok && s.Time.Sub(at) > keepGone {
			*t = trail{}
		}
		delete(p.gone, k)
		t.note(e, s.Time)
	}
	if moved {
		p.miss(s)
	}
	p.forget(s.Time)
	p.last = s.Entries
}

// miss takes note of the entries that a snapshot has not any more.
func (p *past) miss(s *Snapshot) {
	there := make(map[key]bool, len(s.Entries))
	for _, e := range s.Entries {
		there[keyOf(e)] = true
	}
	for k, t := range p.all {
		if _, ok := p.gone[k]; ok || there[k] {
			continue
		}
		p.gone[k], t.held = s.Time, false
	}
}

// forget drops what is gone for too long, and the oldest of too many.
func (p *past) forget(now time.Time) {
	drop := func(k key) {
		delete(p.all, k)
		delete(p.gone, k)
	}
	for k, at := range p.gone {
		if now.Sub(at) > keepGone {
			drop(k)
		}
	}
	if len(p.gone) <= maxGone {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(p.gone), func(a, b key) int {
		return cmp.Or(p.gone[a].Compare(p.gone[b]), cmp.Compare(a.path, b.path), cmp.Compare(a.kind, b.kind))
	})
	for _, k := range oldest[:len(oldest)-maxGone] {
		drop(k)
	}
}

// note takes in one look at the entry.
func (t *trail) note(e *Entry, now time.Time) {
	v := &e.Verdict
	if n := len(t.States); n == 0 || t.States[n-1].State != v.State || t.States[n-1].Cause != v.Cause {
		t.States = push(t.States, StateAt{Time: now, State: v.State, Cause: v.Cause}, maxSeen)
	}
	if n := len(t.Epochs); e.Epoch != 0 && (n == 0 || t.Epochs[n-1].Epoch != e.Epoch) {
		t.Epochs = push(t.Epochs, EpochAt{Time: now, Epoch: e.Epoch}, maxSeen)
	}
	h := e.Holder()
	if h == nil {
		// What cannot be read for a moment may have the same holder still.
		t.held = t.held && v.State != verdict.Free
		return
	}
	if n := len(t.Holders); n == 0 || !t.held || !sameHolder(&t.Holders[n-1].Holder, h) {
		t.Holders = push(t.Holders, HolderAt{Time: now, Holder: *h}, maxSeen)
	}
	t.held = true
	beat := e.Beat()
	if n := len(t.Beats); !beat.IsZero() && (n == 0 || !near(t.Beats[n-1], beat)) {
		t.Beats = push(t.Beats, beat, maxBeats)
	}
}

// push appends x to a list that holds at most so many.
func push[T any](list []T, x T, most int) []T {
	if len(list) == most {
		copy(list, list[1:])
		list[most-1] = x
		return list
	}
	return append(list, x)
}
