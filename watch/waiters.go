package watch

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// sections finds who waits for the critical sections of leases, and those that somebody holds who is not seen.
// Processes are looked at only where something is flocked.
func (w *Watcher) sections(entries []Entry) {
	table := w.table().Batch()
	var again *proc.Table
	for i := range entries {
		e := &entries[i]
		dev, ino, ok := sectionOf(e)
		if !ok || !table.Flocked(ino) {
			continue
		}
		inside, waiters, complete := flockers(table, dev, ino)
		if !inside && !complete {
			// The kernel's list is older than the look at the descriptors: a claim that ended in between is in
			// one and not in the other, and hides from nobody.
			if again == nil {
				again = w.table().Batch()
			}
			if inside, complete = false, true; again.Flocked(ino) {
				inside, waiters, complete = flockers(again, dev, ino)
			}
		}
		e.Waiters, e.Hidden = waiters, !inside && !complete
	}
}

// keepWaiters tells leases of a look at a root who waited for them at the last one.
func keepWaiters(last, entries []Entry) {
	waited := make(map[string]*Entry)
	for i := range last {
		if e := &last[i]; e.Kind == Lease && (e.Waiters != nil || e.Hidden) {
			waited[e.Path] = e
		}
	}
	if len(waited) == 0 {
		return
	}
	for i := range entries {
		if e := &entries[i]; e.Kind == Lease && waited[e.Path] != nil {
			e.Waiters, e.Hidden = waited[e.Path].Waiters, waited[e.Path].Hidden
		}
	}
}

// sectionOf returns the flock file of a lease by device and inode. ok is false where there is none.
func sectionOf(e *Entry) (dev, ino uint64, ok bool) {
	if e.Kind != Lease {
		return 0, 0, false
	}
	st, err := os.Lstat(filepath.Join(filepath.Dir(e.Path), e.ID+".lock"))
	if err != nil || !st.Mode().IsRegular() {
		return 0, 0, false
	}
	return record.Inode(st)
}

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

// pollers tells every lock who waits for it: whose temps are among the entries, and whom extra names by lock.
func pollers(entries []*Entry, extra map[string][]Waiter) {
	temps := make(map[string][]*Entry) // by lock
	for i := range entries {
		e := entries[i]
		if e.Kind != Temp || e.LockOf == "" || e.Verdict.State != verdict.InUse || e.Seen().Proc.Answer != proc.Alive {
			continue
		}
		temps[e.LockOf] = append(temps[e.LockOf], e)
	}
	for i := range entries {
		e := entries[i]
		if e.Kind != Lock {
			continue
		}
		e.Waiters = nil // that of an older snapshot is shared with it
		add := func(waiter Waiter) {
			if !slices.ContainsFunc(e.Waiters, func(w Waiter) bool { return w.PID == waiter.PID }) {
				e.Waiters = append(e.Waiters, waiter)
			}
		}
		for _, temp := range temps[e.Path] {
			if waiter := pollerOf(temp); !holds(e, waiter.PID, temp.Holder()) {
				add(waiter)
			}
		}
		for _, waiter := range extra[e.Path] {
			if !holds(e, waiter.PID, nil) {
				add(waiter)
			}
		}
		slices.SortFunc(e.Waiters, byPID)
	}
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

// holds reports whether the process of a temp, seen as pid and recorded as who, is the lock's holder: it makes a temp
// for every beat.
func holds(lock *Entry, pid int, who *verdict.Holder) bool {
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
