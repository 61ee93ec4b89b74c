package watch

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/sweep"
)

// keepNames is how long the names of entries are believed that did not change.
const keepNames = time.Minute

// scan finds what changed without being told, in all roots. Of one whose directories are unchanged only the files are
// asked, and of those that are, nothing is read. Whoever asked for a scan gets all read, as does a machine that changed
// its name or its clock.
func (e *engine) scan(ctx context.Context, now time.Time) (changed bool) {
	e.openSource()
	self := e.w.table().Self()
	all := len(e.asked) > 0 || self != e.self
	e.self = self
	for i, r := range e.roots {
		r.rewatch = true // a watch may have gone unseen
		switch {
		case ctx.Err() != nil:
			return changed
		case all:
			changed = e.lookWith(ctx, i, nil) || changed
		case r.rootLook == nil || now.Sub(r.named) > keepNames || !r.isCalm():
			changed = e.look(ctx, i) || changed
		default:
			if e.follow(i) {
				r.stir(now)
			}
			told := r.told()
			changed = e.refreshWith(ctx, i, r.stirred(), told) || changed
		}
	}
	return changed
}

// isCalm reports whether no directory of the root has changed since it was listed: then nothing came and nothing went.
func (r *tracked) isCalm() bool {
	if !r.root.Local || r.place == (place{}) || len(r.errors) > 0 {
		return false
	}
	for dir, f := range r.dirs {
		if !f.stamp.Holds(dir, r.at) {
			return false
		}
	}
	return true
}

// stirred are the files of a calm root that were changed, or may have been.
func (r *tracked) stirred() []string {
	var paths []string
	for _, en := range r.sorted {
		if !unchanged(en, true) {
			paths = append(paths, en.Path)
		}
	}
	return paths
}

// known returns what is known of an entry and may still be so.
func (r *tracked) known(k key) *Entry {
	if e := r.index[k]; e != nil && e.Unseen.IsZero() {
		return e
	}
	return nil
}

// told are the files of which events have told since they were looked at last, by their stems.
func (r *tracked) told() map[string]bool {
	told := make(map[string]bool, len(r.queue))
	for _, h := range r.queue {
		told[sweep.Stem(h.path)] = true
	}
	return told
}

// look looks at the i-th root, but reads nothing that is unchanged, follows its directories, and decides when it is
// looked at next.
func (e *engine) look(ctx context.Context, i int) (changed bool) {
	return e.lookWith(ctx, i, e.roots[i].known)
}

func (e *engine) lookWith(ctx context.Context, i int, known func(key) *Entry) bool {
	r := e.roots[i]
	told, moved := r.told(), !r.first.IsZero()
	// An event that comes from here on may be of a change that this look does not see.
	r.first, r.last = time.Time{}, time.Time{}
	r.queue = nil
	clear(r.dirty)
	spent := e.w.processorTime()
	old := r.rootLook
	look := e.w.lookAt(ctx, i, known)
	if ctx.Err() != nil {
		return false
	}
	now := time.Now()
	if old == nil || now.Sub(r.named) > keepNames {
		e.w.rename(look)
		r.named = now
	}
	changes := r.changes(look.entries)
	look.entries = nil // the tree has them
	r.rootLook = look
	if old == nil || old.place != look.place || moved {
		// All of it is new, or directories came and went: what lies in them came and went with them, and has no events.
		told = nil
	}
	if old != nil && outOfSight(look.errors, look.path) {
		look.root.Kind = old.root.Kind // what cannot be listed looks plain
	}
	e.update(r, r.outOfSight(changes), told, old)
	spent = e.w.processorTime() - spent
	if e.follow(i) {
		r.first, r.last = now, now
	}
	if len(r.suspects) == 0 && now.Sub(r.deafAt) > trust {
		r.deafAt = time.Time{}
	}
	e.tellMode(i)
	r.nextAt = time.Time{}
	switch r.root.Watch {
	case noMode:
		r.nextAt = now.Add(tick)
	case pollMode:
		for r.every = pollGap; r.every < pollFactor*spent; r.every *= 2 {
		}
		e.tellMode(i)
		r.nextAt = now.Add(r.every)
	}
	return true
}

// rename gives entries that were taken over the names that they have now.
func (w *Watcher) rename(look *rootLook) {
	if len(look.entries) == 0 {
		return
	}
	names := w.namesOf(look.layout)
	for j, en := range look.entries {
		if name := names.Of(en.Path); en.Name != name.Short || en.Checkout != name.Path {
			again := *en
			again.Name, again.Checkout = name.Short, name.Path
			look.entries[j] = &again
		}
	}
}

// refresh looks at files of the i-th root that events named, and at those that belong to them.
func (e *engine) refresh(ctx context.Context, i int, files []string) (changed bool) {
	return e.refreshWith(ctx, i, files, nil)
}

// refreshWith is refresh of files of which told says whether an event has told of them; nil: all were, or need not be.
func (e *engine) refreshWith(ctx context.Context, i int, files []string, told map[string]bool) (changed bool) {
	r := e.roots[i]
	switch {
	case len(files) == 0:
		return false
	case r.rootLook == nil || r.layout.Kind.Has(sweep.File) || r.layout.Kind.Has(sweep.Missing):
		return e.look(ctx, i)
	}
	changes, files := e.renewed(ctx, r, files)
	a := r.layout.Around(files, r.temps)
	for _, dir := range a.Found.Dirs {
		if _, ok := r.dirs[dir]; !ok {
			r.stir(time.Now())
		}
	}
	fresh := e.w.read(ctx, paths{locks: a.Found.Locks, tokens: a.Found.Tokens, temps: a.Found.Temps, leases: a.Found.Leases}, r.waited(a.Found.Leases))
	if ctx.Err() != nil {
		return false
	}
	e.w.name(r.layout, r.root.Path, fresh)
	changed = r.mend(&a)
	is := make(map[key]*Entry, len(fresh))
	for _, en := range fresh {
		is[keyOf(en)] = en
	}
	changes = slices.DeleteFunc(changes, func(c change) bool { return slices.Contains(a.Paths, c.is.Path) })
	for _, path := range a.Paths {
		for kind := Lease; kind <= Temp; kind++ {
			k := key{kind, path}
			if c := (change{r.index[k], is[k]}); c.was != nil || c.is != nil {
				changes = append(changes, c)
			}
		}
	}
	return e.update(r, r.outOfSight(changes), told, r.rootLook) || changed
}

// renewed looks at the files of leases and locks that are known, and returns those that may mean more than another
// content of them: what went, and what is not known.
func (e *engine) renewed(ctx context.Context, r *tracked, files []string) (changes []change, rest []string) {
	var want paths
	if r.root.Local {
		want.known = func(lease string) *verdict.LeaseFacts {
			f, _ := r.index[key{Lease, lease}].Subject.(*verdict.LeaseFacts)
			return f
		}
	}
	for _, path := range files {
		switch {
		case isKnown(r.index[key{Lease, path}]):
			want.leases = append(want.leases, path)
		case isKnown(r.index[key{Lock, path}]):
			want.locks = append(want.locks, path)
		default:
			rest = append(rest, path)
		}
	}
	if len(want.leases)+len(want.locks) == 0 {
		return nil, files
	}
	slices.Sort(want.leases) // by directory
	is := make(map[string]*Entry)
	for _, en := range e.w.read(ctx, want, r.waited(want.leases)) {
		is[en.Path] = en
	}
	for _, path := range slices.Concat(want.leases, want.locks) {
		en := is[path]
		if !isKnown(en) || outOfSight(r.errors, path) {
			rest = append(rest, path)
			continue
		}
		was := r.index[keyOf(en)]
		en.Root, en.Name, en.Checkout = was.Root, was.Name, was.Checkout
		changes = append(changes, change{was, en})
	}
	return changes, rest
}

// isKnown reports whether an entry is there, is seen, and has a record.
func isKnown(e *Entry) bool {
	if e == nil || !e.Unseen.IsZero() {
		return false
	}
	seen := e.Seen()
	return seen != nil && !seen.Missing && seen.Problem == nil
}

// waited reports whether somebody held or wanted the flock of one of the leases.
func (r *tracked) waited(leases []string) bool {
	return slices.ContainsFunc(leases, func(path string) bool {
		en := r.index[key{Lease, path}]
		return en != nil && hasFlock(en)
	})
}

// mend replaces the errors of the files that were looked at.
func (r *tracked) mend(a *sweep.Around) (changed bool) {
	kept := slices.DeleteFunc(slices.Clone(r.errors), func(e EntryError) bool { return slices.Contains(a.Paths, e.Path) })
	was := r.errors
	r.errors = kept
	for _, e := range a.Found.Errors {
		r.fail(e.Path, e.Err)
	}
	return !sameErrors(was, r.errors)
}

// outOfSight keeps what is not gone, but cannot be looked at.
func (r *tracked) outOfSight(changes []change) []change {
	if len(r.errors) == 0 {
		return changes
	}
	now := time.Now()
	kept := changes[:0]
	for _, c := range changes {
		switch {
		case c.is != nil || !outOfSight(r.errors, c.was.Path):
			kept = append(kept, c)
		case c.was.Unseen.IsZero():
			last := *c.was
			last.Unseen = now
			last.Verdict = brief(last.Judge(now))
			kept = append(kept, change{c.was, &last})
		}
	}
	return kept
}

// update takes in changes of a root's entries. It reports whether a snapshot tells anything of them. Those that are new in
// content while told does not say that an event told of them are suspect; old is the look that had not seen them.
func (e *engine) update(r *tracked, changes []change, told map[string]bool, old *rootLook) (changed bool) {
	locks := make(map[string]bool)
	for _, c := range changes {
		en := c.entry()
		if en.LockOf != "" {
			locks[en.LockOf] = true
		} else if en.Kind == Lock {
			locks[en.Path] = true
		}
	}
	r.take(changes)
	changes = append(changes, e.rewait(r, maps.Keys(locks))...)
	for _, c := range changes {
		e.account(r, c)
		changed = changed || c.was == nil || c.is == nil || !sameEntry(c.was, c.is)
		if told != nil && (c.was == nil || c.is == nil || !sameContent(c.was, c.is)) {
			e.doubt(r, c.entry(), told, old)
		}
	}
	return changed
}

// rewait tells locks anew who waits for them.
func (e *engine) rewait(r *tracked, locks iter.Seq[string]) (changes []change) {
	for lock := range locks {
		en := r.index[key{Lock, lock}]
		if en == nil {
			continue
		}
		if waiters := waitersOf(en, r.beside[lock], e.pollers[lock]); !slices.Equal(waiters, en.Waiters) {
			again := *en
			again.Waiters = waiters
			changes = append(changes, change{en, &again})
		}
	}
	r.take(changes)
	return changes
}

// account keeps the books of a change that is known now.
func (e *engine) account(r *tracked, c change) {
	count := func(en *Entry, n int) {
		if pid := alivePID(en); pid != 0 {
			was := e.alive[pid]
			if e.alive[pid] = was + n; was+n == 0 {
				delete(e.alive, pid)
			}
			e.enlist = e.enlist || was == 0 || was+n == 0
		}
		for _, s := range sightsOf(en) {
			if e.sights[s] += n; e.sights[s] == 0 {
				delete(e.sights, s)
			}
		}
	}
	if c.was != nil {
		count(c.was, -1)
		delete(e.ahead, c.was)
	}
	if c.is != nil {
		count(c.is, 1)
		if c.is.Unseen.IsZero() && ahead(c.is) {
			e.ahead[c.is] = true
		}
		e.plan(r, c.is)
	}
	e.age(r, c)
}

// doubt takes note of a change of which the kernel should have told, and has not yet.
func (e *engine) doubt(r *tracked, en *Entry, told map[string]bool, old *rootLook) {
	stem := sweep.Stem(en.Path)
	if e.source == nil || old == nil || told[stem] || !e.watchedSince(en, old.at) {
		return
	}
	if _, ok := r.suspects[stem]; !ok {
		r.suspects[stem] = time.Now().Add(hearsay)
	}
}

// suspect has roots polled of whose changes the kernel has not told in time.
func (e *engine) suspect(now time.Time) (changed bool) {
	for _, r := range e.roots {
		for stem, until := range r.suspects {
			if now.Before(until) {
				continue
			}
			delete(r.suspects, stem)
			r.deafAt, r.rewatch, changed = now, true, true
			r.nextAt = earlier(r.nextAt, now.Add(pollGap))
			e.w.log().Warn("changes were found that the kernel did not tell of", "root", r.root.Path, "file", stem)
		}
	}
	return changed
}
