package watch

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/sweep"
)

// An original that waits makes a temp ten times a second and removes it at once when it cannot be linked: a look comes
// too late for most of them. The events tell how often; one that can still be read tells who.
const (
	pollsRecent = 500 * time.Millisecond // so old a poll is still one of somebody who waits
	pollsApart  = 50 * time.Millisecond  // the first from the last: whoever makes one temp has not waited
	readsApart  = 10 * time.Millisecond  // between two temps that are read because of an event
	maxPolls    = 1024
)

// pollOf is a lock and who polls for it by the number in the name of the temp, which can be of another namespace.
type pollOf struct {
	lock string
	pid  uint32
}

// poll is what events told of one contender.
type poll struct {
	first, last time.Time
	who         Waiter // no pid: no temp of it could be read
}

func (p *poll) end() time.Time { return p.last.Add(pollsRecent) }

// hearPoll takes note of a temp that was made for a lock.
func (e *engine) hearPoll(ev fsnotify.Event, now time.Time) {
	if !ev.Has(fsnotify.Create) {
		return
	}
	_, pid, ok := record.ParseTemp(filepath.Base(ev.Name))
	lock := sweep.LockOf(ev.Name)
	if !ok || lock == "" {
		return
	}
	k := pollOf{lock, pid}
	p := e.polls[k]
	switch {
	case p != nil && now.Before(p.end()):
		p.last = now
	case p == nil && len(e.polls) >= maxPolls:
		return
	default:
		p = &poll{first: now, last: now}
		if e.polls == nil {
			e.polls = make(map[pollOf]*poll)
		}
		e.polls[k] = p
	}
	// A storm of temps is no reason to read each.
	if p.who.PID != 0 || now.Sub(e.readAt) < readsApart {
		return
	}
	e.readAt = now
	info := e.w.Locker().InspectTemp(ev.Name)
	// The number alone can be anybody's.
	if info.Facts.Record != nil && info.Facts.Proc.Answer == proc.Alive {
		temp := tempEntry(info)
		p.who = pollerOf(temp)
	}
}

// countPolls decides who waits by what was heard, and reports whether that changed.
func (e *engine) countPolls(now time.Time) (changed bool) {
	if len(e.polls) == 0 && len(e.pollers) == 0 {
		return false
	}
	was := e.pollers
	e.pollers = make(map[string][]Waiter)
	for k, p := range e.polls {
		switch {
		case !now.Before(p.end()):
			delete(e.polls, k)
		case p.who.PID != 0 && p.last.Sub(p.first) >= pollsApart:
			e.pollers[k.lock] = append(e.pollers[k.lock], p.who)
		}
	}
	for _, waiters := range e.pollers {
		slices.SortFunc(waiters, byPID)
	}
	if maps.EqualFunc(was, e.pollers, slices.Equal) {
		return false
	}
	locks := maps.Clone(was)
	maps.Copy(locks, e.pollers)
	for _, r := range e.roots {
		for _, c := range e.rewait(r, maps.Keys(locks)) {
			e.account(r, c)
			changed = true
		}
	}
	return changed
}

// pollsEnd is when the first of those who were heard is not heard of any more; zero: never.
func (e *engine) pollsEnd() time.Time {
	var at time.Time
	for _, p := range e.polls {
		at = earlier(at, p.end())
	}
	return at
}
