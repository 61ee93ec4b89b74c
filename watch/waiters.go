package watch

import (
	"cmp"
	"slices"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

// sections finds who waits for the critical sections of leases, and those that somebody holds who is not seen.
// Processes are looked at only where something is flocked. What is nil is passed over.
func (w *Watcher) sections(leases []*Entry) {
	table := w.table().Batch()
	var again *proc.Table
	for _, e := range leases {
		if e == nil {
			continue
		}
		f, ok := e.Subject.(*verdict.LeaseFacts)
		if !ok || !mayFlock(f) || !table.Flocked(f.Flock.Ino) {
			continue
		}
		inside, waiters, complete := flockers(table, f.Flock.Dev, f.Flock.Ino)
		if !inside && !complete {
			// The kernel's list is older than the look at the descriptors: a claim that ended in between is in
			// one and not in the other, and hides from nobody.
			if again == nil {
				again = w.table().Batch()
			}
			if inside, complete = false, true; again.Flocked(f.Flock.Ino) {
				inside, waiters, complete = flockers(again, f.Flock.Dev, f.Flock.Ino)
			}
		}
		e.Waiters, e.Hidden = waiters, !inside && !complete
	}
}

// mayFlock reports whether a lease has a flock file that can be told from others.
func mayFlock(f *verdict.LeaseFacts) bool { return f.Section == nil && f.Flock.Ino != 0 }

// flockers returns who waits for an flock, whether anybody is seen to hold it, and whether everybody could be seen.
func flockers(t *proc.Table, dev, ino uint64) (inside bool, waiters []Waiter, complete bool) {
	holders, complete := t.FlockHolders(dev, ino)
	for _, h := range holders {
		if h.Waiting {
			waiters = append(waiters, Waiter{PID: h.PID, Name: h.Name, How: ByFlock, Stopped: h.Stopped})
		} else {
			inside = true
		}
	}
	return inside, waiters, complete
}

// waitersOf is who waits for a lock: whose temps are beside it, and whom extra names.
func waitersOf(lock *Entry, beside []*Entry, extra []Waiter) []Waiter {
	var waiters []Waiter
	add := func(waiter Waiter) {
		if !slices.ContainsFunc(waiters, func(w Waiter) bool { return w.PID == waiter.PID }) {
			waiters = append(waiters, waiter)
		}
	}
	for _, e := range beside {
		if e.Kind != Temp || e.Verdict.State != verdict.InUse || e.Seen().Proc.Answer != proc.Alive {
			continue
		}
		if waiter := pollerOf(e); !isHeldBy(lock, waiter.PID, e.Holder()) {
			add(waiter)
		}
	}
	for _, waiter := range extra {
		if !isHeldBy(lock, waiter.PID, nil) {
			add(waiter)
		}
	}
	slices.SortFunc(waiters, byPID)
	return waiters
}

func byPID(a, b Waiter) int { return cmp.Compare(a.PID, b.PID) }

// pollerOf is the process that a temp in use belongs to.
func pollerOf(temp *Entry) Waiter {
	f := &temp.Seen().Proc
	waiter := Waiter{PID: f.PID, How: ByPoll, Stopped: f.Condition != proc.Running}
	if facts, ok := temp.Subject.(*verdict.TempFacts); ok && waiter.PID == 0 {
		waiter.PID = int(facts.PID)
	}
	if f.Occupant.PID == waiter.PID {
		waiter.Name = f.Occupant.Name
	}
	return waiter
}

// isHeldBy reports whether the process of a temp, seen as pid and recorded as who, is the lock's holder: it makes a temp
// for every beat.
func isHeldBy(lock *Entry, pid int, who *verdict.Holder) bool {
	h, seen := lock.Holder(), lock.Seen()
	switch {
	case h == nil || seen.Missing || seen.Proc.Answer == proc.Dead:
		return false
	case seen.Proc.PID != 0:
		return seen.Proc.PID == pid
	case who != nil:
		return h.PID == who.PID && h.Host == who.Host
	default:
		return int(h.PID) == pid
	}
}
