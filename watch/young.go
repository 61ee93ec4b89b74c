package watch

import (
	"context"
	"maps"
	"time"

	"holdfast/fslock/verdict"
)

// youngster is an entry that has not lived long enough to be shown. Originals take and drop locks, and write temps, in
// less time than anybody can read.
type youngster struct {
	at     time.Time       // when it is old enough
	holder *verdict.Holder // whose it is; another one's is as young as it is then
	shown  *Entry          // what is shown in its place; nil: nothing
}

// age decides whether an entry that came, or was free before, is too young to be shown.
func (e *engine) age(r *tracked, c change) {
	k := keyOf(c.entry())
	old, was := e.young[r][k]
	delete(e.young[r], k)
	var at time.Time
	switch {
	case c.is == nil:
	case was && isBare(c.is):
		at = old.at
	case c.was == nil && isBare(c.is):
		at = time.Now().Add(shortLived) // it is free and known only because of something as young beside it
	default:
		at = ripe(c.is)
	}
	shown := c.was
	if was {
		shown = old.shown
		if c.is != nil && sameHold(old.holder, c.is.Holder()) {
			at = old.at
		}
	}
	if e.last == nil || !at.After(time.Now()) || shown != nil && shown.Verdict.State != verdict.Free {
		return
	}
	if e.young[r] == nil {
		e.young[r] = make(map[key]youngster)
	}
	e.young[r][k] = youngster{at, c.is.Holder(), shown}
}

func sameHold(a, b *verdict.Holder) bool { return a != nil && b != nil && sameHolder(a, b) }

// ripe is when an entry is old enough to be shown; zero: at once.
func ripe(e *Entry) time.Time {
	seen := e.Seen()
	if e.Kind == Lease || seen == nil || seen.Missing || seen.File.ModTime.After(seen.Look) {
		return time.Time{}
	}
	return seen.File.ModTime.Add(shortLived)
}

// ripeAt is when the next one is old enough; zero: never.
func (e *engine) ripeAt() (at time.Time) {
	for _, young := range e.young {
		for _, y := range young {
			at = earlier(at, y.at.Add(time.Millisecond))
		}
	}
	return at
}

// ripen looks at those that are old enough by now, which are shown if they are still there.
func (e *engine) ripen(ctx context.Context, now time.Time) (changed bool) {
	paths := make(map[*tracked][]string)
	ripe := func(y youngster) bool { return !y.at.After(now) }
	for r, young := range e.young {
		for k, y := range young {
			if ripe(y) {
				paths[r] = append(paths[r], k.path)
			}
		}
	}
	e.again(ctx, paths)
	for r := range paths {
		// What cannot be looked at is not waited for.
		maps.DeleteFunc(e.young[r], func(_ key, y youngster) bool { return ripe(y) })
	}
	return len(paths) > 0
}

// unripe is what is shown of the entries of a root.
func (e *engine) unripe(r *tracked) []*Entry {
	young := e.young[r]
	if len(young) == 0 {
		return r.sorted
	}
	masks := make(map[*Entry]*Entry, len(young))
	for k, y := range young {
		masks[r.index[k]] = y.shown
	}
	shown := make([]*Entry, 0, len(r.sorted))
	for _, en := range r.sorted {
		mask, masked := masks[en]
		switch {
		case !masked:
			shown = append(shown, en)
		case mask != nil:
			shown = append(shown, mask)
		}
	}
	return shown
}
