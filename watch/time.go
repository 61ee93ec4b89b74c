package watch

import (
	"container/heap"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/sweep"
)

// due is an entry whose verdict time alone changes.
type due struct {
	at   time.Time
	root *tracked
	key  key
}

// dues is a heap, the earliest first. An entry that is renewed again and again stays in it as it was planned first, and
// is planned anew when that time comes.
type dues []due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)        { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	(*d)[len(*d)-1] = due{}
	*d = (*d)[:len(*d)-1]
	return last
}

// turns is when time alone changes what is said of an entry or of its token; zero: never.
func turns(e *Entry) time.Time {
	at := e.Verdict.Changes
	if e.Token != nil {
		at = earlier(at, e.Token.Clears)
	}
	// By the wall clock alone: the other one stands still while the machine sleeps.
	return at.Round(0)
}

// plan takes note of when the entry is to be looked at again.
func (e *engine) plan(r *tracked, en *Entry) {
	at, now := turns(en), time.Now()
	switch {
	case at.IsZero() || !en.Unseen.IsZero():
		return
	case at.After(now):
		at = at.Add(time.Millisecond) // a limit is passed a moment after it is reached
	default:
		at = now.Add(overdue).Round(0)
	}
	k := keyOf(en)
	if planned, ok := r.planned[k]; ok && !planned.After(at) {
		return
	}
	r.planned[k] = at
	heap.Push(&e.due, due{at, r, k})
}

// dueAt is when the next verdict changes, or may; zero: never. Those of a while are looked at together.
func (e *engine) dueAt() time.Time {
	if len(e.due) == 0 {
		return time.Time{}
	}
	return later(e.due[0].at, e.passed.Add(passGap))
}

// pass looks at what time has changed.
func (e *engine) pass(ctx context.Context, now time.Time) (changed bool) {
	if at := e.dueAt(); at.IsZero() || at.After(now) {
		return false
	}
	e.passed = now
	paths := make(map[*tracked][]string)
	for len(e.due) > 0 && !e.due[0].at.After(now) {
		d := heap.Pop(&e.due).(due)
		if d.root.planned[d.key].Equal(d.at) {
			delete(d.root.planned, d.key)
		}
		switch en := d.root.index[d.key]; {
		case en == nil:
		case turns(en).After(now):
			e.plan(d.root, en)
		case !turns(en).IsZero():
			paths[d.root] = append(paths[d.root], en.Path)
		}
	}
	return e.again(ctx, paths)
}

// again looks at files of which no event told.
func (e *engine) again(ctx context.Context, paths map[*tracked][]string) (changed bool) {
	for i, r := range e.roots {
		changed = e.refresh(ctx, i, paths[r]) || changed
	}
	return changed
}

// pick are the files of the entries that such says, by root.
func (e *engine) pick(such func(*Entry) bool) map[*tracked][]string {
	paths := make(map[*tracked][]string)
	for _, r := range e.roots {
		for _, en := range r.sorted {
			if en.Unseen.IsZero() && such(en) {
				paths[r] = append(paths[r], en.Path)
			}
		}
	}
	return paths
}

// observe looks at the processes that entries name, and again at those entries of which a process is not any more what it
// was; further at what must be watched without a gap, because its stamp lies in the future.
func (e *engine) observe(ctx context.Context, now time.Time) (changed bool) {
	if now.Before(e.tickAt) && now.Before(e.flockAt) {
		return false
	}
	spent := e.w.processorTime()
	if table := e.w.table().Batch(); !now.Before(e.flockAt) {
		e.flockAt = now.Add(flockGap)
		changed = e.flocks(ctx, table)
	}
	if !now.Before(e.tickAt) {
		for _, r := range e.roots {
			if r.isElsewhere() {
				r.stir(now)
			}
		}
		changed = e.again(ctx, e.restless()) || changed
		e.tickAt = time.Now().Add(max(tick, tickFactor*(e.w.processorTime()-spent)))
	}
	return changed
}

// isElsewhere reports whether the root, or a directory right below it or of leases, is another one than was looked at: a
// file system that is mounted or unmounted, and a link above that is turned, make no event.
func (r *tracked) isElsewhere() bool {
	if r.rootLook == nil || r.place == (place{}) || r.layout.Kind.Has(sweep.File) {
		return false
	}
	if p, _ := placeOf(r.path); p != r.place {
		return true
	}
	for dir, f := range r.dirs {
		if filepath.Dir(dir) != r.path && !slices.Contains(r.layout.LeaseDirs, dir) {
			continue
		}
		if p, err := placeOf(dir); err == nil && p != f.place {
			return true
		}
	}
	return false
}

// restless are the files of entries of which a process is not what it was, or that must be watched without a gap.
func (e *engine) restless() map[*tracked][]string {
	table, odd := e.w.table().Batch(), make(map[sight]bool)
	e.ticks++
	for s := range e.sights {
		// Who is gone does not come back, and that another process gets the number is told early enough.
		if s.cause == proc.Gone && (s.pid+e.ticks)%goneTicks != 0 {
			continue
		}
		if !s.agrees(table) {
			odd[s] = true
		}
	}
	if len(odd) == 0 && len(e.ahead) == 0 {
		return nil
	}
	return e.pick(func(en *Entry) bool {
		for _, s := range sightsOf(en) {
			if odd[s] {
				return true
			}
		}
		return e.ahead[en]
	})
}

// flocks looks at the leases whose flock somebody holds or wants, or did when they were looked at.
func (e *engine) flocks(ctx context.Context, table *proc.Table) (changed bool) {
	for _, r := range e.roots {
		var leases []string
		for _, en := range r.sorted {
			f, ok := en.Subject.(*verdict.LeaseFacts)
			if ok && en.Unseen.IsZero() && mayFlock(f) && (hasFlock(en) || table.Flocked(f.Flock.Ino)) {
				leases = append(leases, en.Path)
			}
		}
		if len(leases) == 0 {
			continue
		}
		var changes []change // whatever has gone meanwhile has its event
		for _, is := range e.w.read(ctx, paths{leases: leases}, true) {
			was := r.index[keyOf(is)]
			is.Root, is.Name, is.Checkout = was.Root, was.Name, was.Checkout
			changes = append(changes, change{was, is})
		}
		changed = e.update(r, changes, nil, r.rootLook) || changed
	}
	return changed
}

// hasFlock reports whether somebody held or wanted the flock of a lease when it was looked at.
func hasFlock(en *Entry) bool {
	f, ok := en.Subject.(*verdict.LeaseFacts)
	return ok && (f.Inside != nil || en.Waiters != nil || en.Hidden)
}

// ahead reports whether a stamp of the entry lies after the time since when the file is watched: only watching
// tells whether it is still renewed.
func ahead(e *Entry) bool {
	seen := e.Seen()
	if seen == nil || seen.Missing {
		return false
	}
	since := seen.Still
	if since.IsZero() {
		since = seen.Look
	}
	return seen.Beat.After(since) || seen.File.ModTime.After(since)
}

// alivePID is the pid under which the living holder of an entry is seen; 0: none is.
func alivePID(e *Entry) int {
	if seen := e.Seen(); seen != nil && seen.Proc.Answer == proc.Alive {
		return seen.Proc.PID
	}
	return 0
}

// watchHolders has the kernel tell of the deaths of all processes that hold entries. Those that it cannot tell of are
// found by observe, as are those whose pid went to another process before it was asked.
func (e *engine) watchHolders() {
	e.enlist = false
	ended, _ := e.deaths.Watch(slices.Collect(maps.Keys(e.alive)))
	e.mourn(ended)
}

// mourn has the next step look at what those processes held.
func (e *engine) mourn(pids []int) {
	for _, pid := range pids {
		e.died[pid] = true
	}
}

// bury looks at what processes held that ended.
func (e *engine) bury(ctx context.Context) bool {
	if len(e.died) == 0 {
		return false
	}
	paths := e.pick(func(en *Entry) bool {
		if e.died[alivePID(en)] {
			return true
		}
		f, ok := en.Subject.(*verdict.LockFacts)
		return ok && f.Token != nil && f.Token.Proc.Answer == proc.Alive && e.died[f.Token.Proc.PID]
	})
	clear(e.died)
	return e.again(ctx, paths)
}
