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
	PID    int            // likewise, as Entry.PID tells it
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
	// began is when the first snapshot was noted. An entry that was in it and has not changed since has no trail yet: most
	// of many entries never do.
	began time.Time
}

// trail is the history of one entry as it goes on.
type trail struct {
	beats   []int64 // in ms
	holders []HolderAt
	epochs  []EpochAt
	states  []StateAt
	held    bool // somebody held it at the last look
}

func (t *trail) history() History {
	h := History{Holders: slices.Clone(t.holders), Epochs: slices.Clone(t.epochs), States: slices.Clone(t.states)}
	for _, ms := range t.beats {
		h.Beats = append(h.Beats, time.UnixMilli(ms))
	}
	return h
}

func (p *past) of(k key, now time.Time) History {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.all[k]
	if t == nil {
		i := slices.IndexFunc(p.last, func(e *Entry) bool { return e.Kind != Temp && keyOf(e) == k })
		if i < 0 {
			return History{}
		}
		t = p.trailOf(p.last[i])
	}
	if at, ok := p.gone[k]; ok && now.Sub(at) > keepGone {
		return History{}
	}
	return t.history()
}

// note takes in a snapshot. What says the same in the same place as in the last one costs a comparison.
func (p *past) note(s *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all, p.gone = make(map[key]*trail), make(map[key]time.Time)
		p.began, p.last = s.Time, s.Entries
	}
	differing(p.last, s.Entries, func(was, e *Entry) {
		switch {
		case e == nil && was.Kind != Temp:
			p.miss(was, s.Time)
		case e != nil && e.Kind != Temp && (was == nil || !sameContent(was, e) || was.Verdict.State != e.Verdict.State ||
			was.Verdict.Cause != e.Verdict.Cause || was.Epoch != e.Epoch):
			p.take(was, e, s.Time)
		}
	})
	p.forget(s.Time)
	p.last = s.Entries
}

// take takes in what has changed about an entry.
func (p *past) take(was, e *Entry, now time.Time) {
	k := keyOf(e)
	t := p.all[k]
	if at, ok := p.gone[k]; t == nil || ok && now.Sub(at) > keepGone {
		t = p.trailOf(was)
		p.all[k] = t
	}
	delete(p.gone, k)
	t.note(e, now)
}

// miss takes note that an entry is not there any more.
func (p *past) miss(was *Entry, now time.Time) {
	k := keyOf(was)
	if p.all[k] == nil {
		p.all[k] = p.trailOf(was)
	}
	p.gone[k], p.all[k].held = now, false
}

// trailOf is the trail of an entry that has not changed since the first snapshot; that of nil is empty.
func (p *past) trailOf(e *Entry) *trail {
	t := &trail{}
	if e != nil {
		t.note(e, p.began)
	}
	return t
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
	if n := len(t.states); n == 0 || t.states[n-1].State != v.State || t.states[n-1].Cause != v.Cause {
		t.states = push(t.states, StateAt{Time: now, State: v.State, Cause: v.Cause}, maxSeen)
	}
	if n := len(t.epochs); e.Epoch != 0 && (n == 0 || t.epochs[n-1].Epoch != e.Epoch) {
		t.epochs = push(t.epochs, EpochAt{Time: now, Epoch: e.Epoch}, maxSeen)
	}
	h := e.Holder()
	if h == nil {
		// What cannot be read for a moment may have the same holder still.
		t.held = t.held && v.State != verdict.Free
		return
	}
	if n := len(t.holders); n == 0 || !t.held || !sameHolder(&t.holders[n-1].Holder, h) {
		t.holders = push(t.holders, HolderAt{Time: now, Holder: *h, PID: e.PID()}, maxSeen)
	}
	t.held = true
	beat := e.Beat()
	if n := len(t.beats); !beat.IsZero() && (n == 0 || !near(time.UnixMilli(t.beats[n-1]), beat)) {
		t.beats = push(t.beats, beat.UnixMilli(), maxBeats)
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
