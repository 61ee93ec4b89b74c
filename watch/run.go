package watch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

// How Run spends its time.
const (
	settle     = 10 * time.Millisecond   // quiet after an event before its root is looked at
	latency    = 100 * time.Millisecond  // at most, while events do not cease
	emitGap    = 100 * time.Millisecond  // between two snapshots
	tick       = time.Second             // between two looks at the processes of held entries, or at a missing root
	pollGap    = 1500 * time.Millisecond // between two looks at a root that is polled; record.Memory bridges 2 s
	scanGap    = 5 * time.Second         // between two full looks that prove that no event was missed
	hearsay    = time.Second             // within which the kernel must have told of a change that was found
	shortLived = 50 * time.Millisecond   // what does not live so long is not shown
	overdue    = 100 * time.Millisecond  // before a verdict that should have changed by now is asked again
	restFactor = 4                       // times the processor time of a look: a fifth of a core at most
	scanFactor = 50                      // likewise, between full looks
)

// How a root is watched, beside eventMode.
const (
	pollMode = "poll"
	noMode   = "none"
)

// Run emits a snapshot at once and then whenever something changed: content, verdict, token, epoch, name, who waits,
// error, or how a root is watched; at most ten a second. Sentences and evidence alone, which tell ages, are no change.
// What time or a death changes is emitted when it is due (expiries within about 0.1 s; deaths at once where the
// kernel tells of them, else, like stops, within about 1 s), without any event of the file system; who waits in flock
// is asked every 5 s, of many leases more rarely. Locks, tokens and temps that live under 50 ms are not emitted.
//
// It blocks until ctx ends and returns nil then; there is no other end. emit is called by one goroutine, and Run
// waits for it. Everything that Run started has ended when it returns.
//
// The verdicts are without Evidence, Originals and Next: Entry.Judge tells them, at Snapshot.Time or another moment.
//
// With more entries than can be looked at ten times a second, snapshots come later: looking at roots takes about a
// fifth of a processor at most.
func (w *Watcher) Run(ctx context.Context, emit func(*Snapshot)) error {
	return w.engine(emit).run(ctx)
}

func (w *Watcher) engine(emit func(*Snapshot)) *engine {
	return &engine{
		w: w, emit: emit,
		looks: make([]*rootLook, len(w.Roots)),
		roots: make([]rootState, len(w.Roots)),
		dirs:  make(map[string]*watched),
		died:  make(map[int]bool),
	}
}

func (e *engine) run(ctx context.Context) error {
	e.deaths = e.w.table().Deaths()
	defer func() {
		e.deaths.Close()
		if e.source != nil {
			_ = e.source.Close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	requests := e.w.requests()
	for {
		var events <-chan fsnotify.Event
		var failures <-chan error
		if e.source != nil {
			events, failures = e.source.Events(), e.source.Errors()
		}
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-events:
			if !ok {
				e.lose(errors.New("the kernel's watcher ended"))
				break
			}
			e.hear(ev)
		case err, ok := <-failures:
			if !ok {
				e.lose(errors.New("the kernel's watcher ended"))
				break
			}
			e.missed(err)
		case pids := <-e.deaths.Ended():
			e.mourn(pids)
		case done := <-requests:
			e.rescan(done)
		case <-timer.C:
			e.step(ctx)
			if ctx.Err() != nil {
				return nil
			}
		}
		timer.Reset(time.Until(e.next()))
	}
}

// engine is one Run. All of it belongs to the goroutine of Run.
type engine struct {
	w     *Watcher
	emit  func(*Snapshot)
	looks []*rootLook // as Watcher.Roots, likewise roots
	roots []rootState
	last  *Snapshot // the one that was emitted last

	source   source // nil: none can be had, for the reason below
	noSource error
	dirs     map[string]*watched // of which the source tells

	emitted time.Time       // when last was emitted
	rest    time.Time       // no root is looked at before
	scanAt  time.Time       // of the next full look
	asked   []chan struct{} // closed after it
	deaths  *proc.Deaths
	died    map[int]bool // processes that ended since the last step, by pid
	tickAt  time.Time
	dueAt   time.Time // when time alone changes a verdict; zero: never
	held    bool      // something is too young to be shown

	polls   map[pollOf]*poll    // that events told of
	pollers map[string][]Waiter // of those, who waits, by lock
	readAt  time.Time           // when a temp was read last because of an event
}

// rootState is what Run knows of one root.
type rootState struct {
	first, last time.Time // of the events since the last look; zero: none
	heard       time.Time // the last event
	nextAt      time.Time // when it is looked at in any case; zero: at the next full look
	suspectAt   time.Time // until when the kernel may still tell of a change that was found; zero: nothing is open
	deaf        bool      // the kernel did not tell
	refused     error     // why not all directories can be watched
	rewatch     bool      // every directory is to be named to the source again: its watch may have gone unseen
}

func (r *rootState) hint(now time.Time) {
	if r.first.IsZero() {
		r.first = now
	}
	r.last, r.heard, r.suspectAt = now, now, time.Time{}
}

// ready is when the events are to be followed by a look; zero: there were none.
func (r *rootState) ready() time.Time {
	if r.first.IsZero() {
		return time.Time{}
	}
	return earlier(r.last.Add(settle), r.first.Add(latency))
}

// lookAt is when the root is to be looked at apart from full looks.
func (r *rootState) lookAt() time.Time { return earlier(r.ready(), r.nextAt) }

// earlier returns the earlier of two times, of which the zero one is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// next is when there is something to do, if no event comes before.
func (e *engine) next() time.Time {
	at := e.scanAt
	for i := range e.roots {
		at = earlier(at, e.roots[i].lookAt())
	}
	at = later(at, e.rest)
	for i := range e.roots {
		at = earlier(at, e.roots[i].suspectAt)
	}
	at = earlier(earlier(at, e.tickAt), earlier(e.dueAt, e.pollsEnd()))
	if len(e.died) > 0 {
		at = earlier(at, time.Now())
	}
	return later(at, e.emitted.Add(emitGap))
}

// missed makes the next step look at everything: some events did not come through.
func (e *engine) missed(err error) {
	e.w.log().Warn("file events were lost", "error", err)
	now := time.Now()
	for i := range e.roots {
		e.roots[i].hint(now)
		e.roots[i].rewatch = true
	}
	e.scanAt = now
}

// lose goes on without a source; the next full look asks for another one.
func (e *engine) lose(err error) {
	e.missed(err)
	_ = e.source.Close()
	e.source, e.noSource = nil, err
	clear(e.dirs)
}

// pass is one step of an engine.
type pass struct {
	now    time.Time
	rested bool   // roots may be looked at
	full   bool   // everything is looked at
	looked []bool // which roots were
}

// step does what is due.
func (e *engine) step(ctx context.Context) {
	now, before := time.Now(), e.w.processorTime()
	p := &pass{now: now, rested: !now.Before(e.rest), looked: make([]bool, len(e.roots))}
	p.full = p.rested && !now.Before(e.scanAt)
	if p.full {
		e.openSource()
	}
	changed := e.last == nil || e.held
	changed = e.countPolls(now) || changed
	for i := range e.roots {
		r := &e.roots[i]
		r.rewatch = r.rewatch || p.full
		if at := r.lookAt(); p.full || p.rested && !at.IsZero() && !now.Before(at) {
			p.looked[i] = true
			changed = e.look(ctx, p, i) || changed
		}
	}
	if ctx.Err() != nil {
		return
	}
	if len(e.died) > 0 {
		changed = e.again(ctx, p, e.bereft) || changed
		clear(e.died)
	}
	if !now.Before(e.tickAt) {
		e.tickAt = now.Add(tick)
		changed = e.probe(ctx, p) || changed
	}
	if !e.dueAt.IsZero() && !now.Before(e.dueAt) {
		due := func(en *Entry) bool { at := changes(en); return !at.IsZero() && !at.After(now) }
		changed = e.again(ctx, p, due) || changed
	}
	for i := range e.roots {
		if r := &e.roots[i]; !r.suspectAt.IsZero() && !now.Before(r.suspectAt) {
			r.suspectAt, r.deaf, changed = time.Time{}, true, true
			r.nextAt = earlier(r.nextAt, now.Add(pollGap))
			e.w.log().Warn("changes were found that the kernel did not tell of", "root", e.looks[i].root.Path)
		}
	}
	if ctx.Err() != nil {
		return
	}
	var s *Snapshot
	if changed {
		s = e.draw()
	}
	e.plan(time.Now())
	if changed || p.full {
		e.watchHolders()
	}

	// What emit does with its time is no reason to look less often.
	spent := e.w.processorTime() - before
	end := time.Now()
	if slices.Contains(p.looked, true) {
		e.rest = end.Add(restFactor * spent)
	}
	if p.full {
		e.scanAt = end.Add(max(scanGap, scanFactor*spent))
	}
	if s != nil {
		s.Seq = e.w.seq.Add(1)
		e.last, e.emitted = s, end
		e.w.past.note(s)
		e.emit(s)
	}
	if p.full {
		e.answer()
	}
}

// look looks at the i-th root, follows its directories and decides when it is looked at next. It reports whether
// anything changed.
func (e *engine) look(ctx context.Context, p *pass, i int) (changed bool) {
	r, old := &e.roots[i], e.looks[i]
	// An event that comes from here on may be of a change that this look does not see.
	r.first, r.last = time.Time{}, time.Time{}
	look := e.w.lookAt(ctx, i)
	if ctx.Err() != nil {
		return false
	}
	if p.full || old == nil || len(look.entries) <= fewLocks {
		e.w.sections(look.entries)
	} else {
		keepWaiters(old.entries, look.entries)
	}
	e.looks[i] = look
	now := time.Now()
	if old != nil && old.place == look.place && e.told(old, look) {
		switch {
		case r.heard.After(old.at):
			r.deaf = false
		case !r.deaf:
			r.suspectAt = now.Add(hearsay)
		}
	}
	if e.follow(i) {
		r.first, r.last = now, now
	}
	e.tellMode(i)
	r.nextAt = time.Time{}
	switch look.root.Watch {
	case noMode:
		r.nextAt = now.Add(tick)
	case pollMode:
		r.nextAt = now.Add(pollGap)
	}
	return old == nil || !sameLook(old, look)
}

// told reports whether there are changes from one look to the next of which the source should have told.
func (e *engine) told(old, look *rootLook) bool {
	if e.source == nil {
		return false
	}
	before := make(map[key]*Entry, len(old.entries))
	for i := range old.entries {
		before[keyOf(&old.entries[i])] = &old.entries[i]
	}
	for i := range look.entries {
		en := &look.entries[i]
		was := before[keyOf(en)]
		delete(before, keyOf(en))
		if (was == nil || !sameContent(was, en)) && e.watchedSince(en, old.at) {
			return true
		}
	}
	for _, was := range before {
		if e.watchedSince(was, old.at) {
			return true
		}
	}
	return false
}

// draw makes a snapshot of the looks; nil if it says nothing new.
func (e *engine) draw() *Snapshot {
	for i := range e.looks {
		e.tellMode(i)
	}
	s := e.w.assemble(e.looks, time.Now(), (*Entry).glance)
	e.holdBack(s)
	pollers(s.Entries, e.pollers)
	if e.last != nil && same(e.last, s) {
		return nil
	}
	return s
}

// holdBack takes what has lived for less than 50 ms out of a snapshot, puts back what the last one said in its
// place, and has its root looked at again when it is old enough. Originals take and drop locks, and write temps, in
// less time than anybody can read.
func (e *engine) holdBack(s *Snapshot) {
	e.held = false
	if e.last == nil {
		return
	}
	young := func(en *Entry) bool { return ripe(en).After(s.Time) }
	if !slices.ContainsFunc(s.Entries, young) {
		return
	}
	before := make(map[key]*Entry, len(e.last.Entries))
	for i := range e.last.Entries {
		before[keyOf(e.last.Entries[i])] = e.last.Entries[i]
	}
	held := make([]bool, len(s.Entries))
	beside := make(map[string]bool) // locks of which a token or temp is shown
	for i, en := range s.Entries {
		was := before[keyOf(en)]
		held[i] = young(en) && (was == nil || was.Verdict.State == verdict.Free)
		if held[i] {
			e.held = true
			e.lookAgain(en.Root, ripe(en))
		} else {
			beside[en.LockOf] = true
		}
	}
	kept := make([]*Entry, 0, len(s.Entries))
	for i, en := range s.Entries {
		was := before[keyOf(en)]
		switch {
		case held[i] && was != nil:
			old := *was
			old.Verdict = old.glance(s.Time)
			kept = append(kept, &old)
		case held[i]:
		case was == nil && en.Kind == Lock && en.Verdict.State == verdict.Free && !beside[en.Path]:
			// It is free only because of a temp that is not shown.
		default:
			kept = append(kept, en)
		}
	}
	s.Entries = kept
}

// ripe is when an entry is old enough to be shown; zero: at once.
func ripe(e *Entry) time.Time {
	seen := e.Seen()
	if e.Kind == Lease || seen == nil || seen.Missing || seen.File.ModTime.After(seen.Look) {
		return time.Time{}
	}
	return seen.File.ModTime.Add(shortLived)
}

func (e *engine) lookAgain(root string, at time.Time) {
	for i, look := range e.looks {
		if look.root.Path == root {
			e.roots[i].nextAt = earlier(e.roots[i].nextAt, at.Add(time.Millisecond))
		}
	}
}
