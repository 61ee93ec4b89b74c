package watch

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

// fewLeases is how many leases of a root are looked at one by one. More are cheaper together: a look at all of them
// asks the system once for what each single one asks anew.
const fewLeases = 8

// fewLocks is how many locks, tokens and temps of a root are looked at without listing it again, and of how many
// entries every look asks who waits for a lease: of more only full looks do.
const fewLocks = 256

// plan decides when time alone changes a verdict.
func (e *engine) plan(now time.Time) {
	e.dueAt = time.Time{}
	for _, look := range e.looks {
		for i := range look.entries {
			switch at := changes(&look.entries[i]); {
			case at.IsZero():
			case at.After(now):
				// A limit is passed a moment after it is reached.
				e.dueAt = earlier(e.dueAt, at.Add(time.Millisecond))
			default:
				e.dueAt = earlier(e.dueAt, now.Add(overdue))
			}
		}
	}
}

// changes is when time alone changes what is said of an entry or of its token; zero: never.
func changes(e *Entry) time.Time {
	at := e.Verdict.Changes
	if e.Token != nil {
		at = earlier(at, e.Token.Clears)
	}
	// By the wall clock alone: the other one stands still while the machine sleeps.
	return at.Round(0)
}

// holder is a process that holds entries. Those that are known by their pid alone are told from those that are
// identified: another process under the pid is the holder of the first, not of the second.
type holder struct {
	pid    int
	legacy bool
	cause  proc.Cause
}

// holderSeen returns the process that holds an entry, if its end, stop or reaping can change the verdict.
func holderSeen(e *Entry) (holder, bool) {
	seen := e.Seen()
	if seen == nil || seen.Proc.Answer != proc.Alive && seen.Proc.Cause != proc.Zombie {
		return holder{}, false
	}
	h := holder{pid: seen.Proc.PID, legacy: seen.Proc.Legacy, cause: seen.Proc.Cause}
	if h.pid == 0 {
		if who := e.Holder(); who != nil {
			h.pid = int(who.PID)
		}
	}
	return h, true
}

// watchHolders has the kernel tell of the deaths of all processes that hold entries. Those that it cannot tell of are
// found by probe, as are those whose pid went to another process before it was asked.
func (e *engine) watchHolders() {
	known := make(map[int]bool)
	for _, look := range e.looks {
		for i := range look.entries {
			if pid := alivePID(&look.entries[i]); pid != 0 {
				known[pid] = true
			}
		}
	}
	ended, _ := e.deaths.Watch(slices.Collect(maps.Keys(known))) // probe looks at all, those that are left too
	e.mourn(ended)
}

// alivePID is the pid under which the living holder of an entry is seen; 0: none is.
func alivePID(e *Entry) int {
	if seen := e.Seen(); seen != nil && seen.Proc.Answer == proc.Alive {
		return seen.Proc.PID
	}
	return 0
}

// mourn has the next step look at what those processes held.
func (e *engine) mourn(pids []int) {
	for _, pid := range pids {
		e.died[pid] = true
	}
}

// bereft reports whether an entry, or the token of a lock, was held by a process that ended.
func (e *engine) bereft(en *Entry) bool {
	if e.died[alivePID(en)] {
		return true
	}
	f, ok := en.Subject.(*verdict.LockFacts)
	return ok && f.Token != nil && f.Token.Proc.Answer == proc.Alive && e.died[f.Token.Proc.PID]
}

// probe looks at one entry of each process that holds any, and at all its others if that one changed; further at
// what must be watched without a gap, because its stamp lies in the future. It reports whether anything changed.
// Roots that were looked at in this step are fresh.
func (e *engine) probe(ctx context.Context, p *pass) (changed bool) {
	type sight struct {
		root, entry int
		was         proc.Finding
	}
	sights := make(map[holder]sight)
	picked := make([][]int, len(e.looks))
	for i, look := range e.looks {
		if p.looked[i] {
			continue
		}
		for j := range look.entries {
			en := &look.entries[j]
			h, ok := holderSeen(en)
			if _, known := sights[h]; ok && !known {
				sights[h] = sight{i, j, en.Seen().Proc}
				picked[i] = append(picked[i], j)
			} else if ahead(en) {
				picked[i] = append(picked[i], j)
			}
		}
	}
	for i := range picked {
		changed = e.reread(ctx, p, i, picked[i]) || changed
	}
	gone := make(map[holder]bool)
	for h, s := range sights {
		if p.looked[s.root] {
			gone[h] = true
			continue
		}
		is := e.looks[s.root].entries[s.entry].Seen().Proc
		if is.Answer != s.was.Answer || is.Cause != s.was.Cause || is.Condition != s.was.Condition || is.PID != s.was.PID {
			gone[h] = true
		}
	}
	if len(gone) == 0 {
		return changed
	}
	others := func(en *Entry) bool { h, ok := holderSeen(en); return ok && gone[h] }
	return e.again(ctx, p, others) || changed
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

// again looks at the entries that pick names, without listing their directories. It reports whether anything
// changed.
func (e *engine) again(ctx context.Context, p *pass, pick func(*Entry) bool) (changed bool) {
	for i, look := range e.looks {
		var picked []int
		for j := range look.entries {
			if !p.looked[i] && pick(&look.entries[j]) {
				picked = append(picked, j)
			}
		}
		changed = e.reread(ctx, p, i, picked) || changed
	}
	return changed
}

// reread looks at some entries of the i-th root. Where all of the root is cheaper to look at, or where one of them
// came or went, it looks at the root, or has it looked at in the next step if there was no rest since the last look.
func (e *engine) reread(ctx context.Context, p *pass, i int, picked []int) (changed bool) {
	look := e.looks[i]
	leases := 0
	for _, j := range picked {
		if look.entries[j].Kind == Lease {
			leases++
		}
	}
	ok := leases <= fewLeases && len(picked)-leases <= fewLocks
	var fresh []Entry
	if ok && len(picked) > 0 {
		fresh, ok = e.w.readAgain(ctx, look, picked)
	}
	switch {
	case ok:
	case p.rested:
		p.looked[i] = true
		return e.look(ctx, p, i)
	default:
		e.roots[i].nextAt = p.now
		return false
	}
	for n, j := range picked {
		was, is := &look.entries[j], fresh[n]
		is.Root, is.Name, is.Checkout = was.Root, was.Name, was.Checkout
		changed = changed || !sameContent(was, &is) || !sameJudgement(was, &is, true) || !sameWaiters(was, &is)
		look.entries[j] = is
	}
	return changed
}

// readAgain looks at some entries of a look. ok is false if one of them came or went, or cannot be looked at.
func (w *Watcher) readAgain(ctx context.Context, look *rootLook, picked []int) (fresh []Entry, ok bool) {
	var locks, tokens, temps []string
	for _, j := range picked {
		switch en := &look.entries[j]; en.Kind {
		case Lock:
			locks = append(locks, en.Path)
		case Token:
			tokens = append(tokens, en.Path)
		case Temp:
			temps = append(temps, en.Path)
		default:
		}
	}
	infos := w.Locker().InspectAll(ctx, locks, tokens, temps)
	if ctx.Err() != nil {
		return nil, false
	}
	for _, j := range picked {
		en := &look.entries[j]
		var is Entry
		switch en.Kind {
		case Lease:
			info, err := w.Store(filepath.Dir(en.Path)).Inspect(en.ID)
			if err != nil {
				return nil, false
			}
			is = leaseEntry(info)
		case Lock:
			is, infos.Locks = lockEntry(infos.Locks[0]), infos.Locks[1:]
		case Token:
			is, infos.Tokens = tokenEntry(infos.Tokens[0]), infos.Tokens[1:]
		case Temp:
			is, infos.Temps = tempEntry(infos.Temps[0]), infos.Temps[1:]
		}
		if is.Seen().Missing != en.Seen().Missing || (is.Token == nil) != (en.Token == nil) {
			return nil, false
		}
		fresh = append(fresh, is)
	}
	w.sections(fresh)
	return slices.Clip(fresh), true
}
