package watch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/fslock/proc"
)

// How Run spends its time.
const (
	settle     = 5 * time.Millisecond    // from an event to the look at what it names: whoever writes is done by then
	latency    = 100 * time.Millisecond  // from an event of a directory to the look at its root, while they do not cease
	emitGap    = 10 * time.Millisecond   // between two snapshots
	tick       = 800 * time.Millisecond  // between two looks at the processes of held entries, or at a missing root
	flockGap   = 2 * time.Second         // between two looks at the kernel's list of flocks
	pollGap    = 1500 * time.Millisecond // between two looks at a root that is polled; record.Memory bridges 2 s
	scanGap    = 5 * time.Second         // between two scans that prove that no event was missed
	rareScan   = 30 * time.Second        // the same, whatever they cost
	trust      = time.Minute             // without an untold change after which the kernel is believed again
	hearsay    = time.Second             // within which the kernel must have told of a change that was found
	shortLived = 50 * time.Millisecond   // what does not live so long is not shown
	flowRest   = 40 * time.Millisecond   // at least, after a look at many files that events named
	passGap    = 50 * time.Millisecond   // between two looks at what time alone may have changed
	overdue    = 100 * time.Millisecond  // before a verdict that should have changed by now is asked again

	// Rests, in times of the processor time that was spent before: on files that events name, on whole roots, on scans, on
	// polls, and on looks at processes.
	restFactor, lookFactor, scanFactor, pollFactor, tickFactor = 9, 4, 800, 20, 20
)

// goneTicks is how many times less often than others the processes are asked that are gone.
const goneTicks = 5

// flow is how many files, named by events and looked at together, are many.
const flow = 8

// How a root is watched, beside eventMode.
const (
	pollMode = "poll"
	noMode   = "none"
)

// Run emits a snapshot at once and then whenever something changed: content, verdict, token, epoch, name, who waits,
// error, or how a root is watched; at most a hundred a second. Sentences and evidence alone, which tell ages, are no
// change. What an event of the file system names is looked at within about 20 ms, in a flow of events within some 50 ms,
// and nothing else with it; a scan every few seconds finds what no event told. What time or a death changes is emitted
// when it is due (expiries within about 0.1 s; deaths at once where the kernel tells of them, else, like stops, within
// about 1 s), without any event; who waits in flock is asked every 2 s. Locks, tokens and temps that live under 50 ms are
// not emitted. Entries whose place cannot be looked at any more stay as they were seen last, with the time since then in
// Unseen.
//
// It blocks until ctx ends and returns nil then; there is no other end. emit is called by one goroutine, and Run
// waits for it. Everything that Run started has ended when it returns. Entries that did not change are the same ones
// as in the snapshot before.
//
// The verdicts are without Evidence, Originals and Next: Entry.Judge tells them, at Snapshot.Time or another moment.
//
// With more changes than can be looked at, snapshots come later: files that events name take about a tenth of a processor
// at most, roots in which directories come and go a fifth, polled ones a twentieth, and all scans together an eighth of a
// percent.
func (w *Watcher) Run(ctx context.Context, emit func(*Snapshot)) error {
	return w.engine(emit).run(ctx)
}

func (w *Watcher) engine(emit func(*Snapshot)) *engine {
	e := &engine{
		w: w, emit: emit,
		roots:   make([]*tracked, len(w.Roots)),
		dirs:    make(map[string]*watched),
		died:    make(map[int]bool),
		alive:   make(map[int]int),
		sights:  make(map[sight]int),
		ahead:   make(map[*Entry]bool),
		young:   make(map[*tracked]map[key]youngster),
		pollers: make(map[string][]Waiter),
	}
	for i := range e.roots {
		e.roots[i] = &tracked{tree: newTree(), dirty: make(map[string]bool), suspects: make(map[string]time.Time), planned: make(map[key]time.Time)}
	}
	return e
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
			failures = e.source.Errors()
			// What comes until the next step is heard then, all at once.
			if !e.isWaiting() || time.Until(e.wakeAt) > latency {
				events = e.source.Events()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-events:
			if !ok {
				e.lose(errors.New("the kernel's watcher ended"))
				break
			}
			e.hear(ev, time.Now().Add(settle))
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
			if e.source != nil {
				e.drain(e.source.Events())
			}
			e.step(ctx)
			if ctx.Err() != nil {
				return nil
			}
			e.wakeAt = time.Time{}
		}
		if at := e.next(); !at.Equal(e.wakeAt) {
			e.wakeAt = at
			timer.Reset(time.Until(at))
		}
	}
}

// isWaiting reports whether a look at files is ahead that events named.
func (e *engine) isWaiting() bool {
	return slices.ContainsFunc(e.roots, func(r *tracked) bool { return len(r.queue) > 0 })
}

// drain hears the events that have come while nobody listened. Who hands them over is given time for the next ones.
func (e *engine) drain(events <-chan fsnotify.Event) {
	for heard, yields := 0, 0; heard < maxHints && yields < 3; {
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			heard, yields = heard+1, 0
			e.hear(ev, time.Now())
		default:
			yields++
			runtime.Gosched()
		}
	}
}

// engine is one Run. All of it belongs to the goroutine of Run.
type engine struct {
	w      *Watcher
	emit   func(*Snapshot)
	roots  []*tracked // as Watcher.Roots
	last   *Snapshot
	self   proc.Self // as what is known was judged by
	wakeAt time.Time // of the next step

	source   source // nil: none can be had, for the reason below
	noSource error
	dirs     map[string]*watched // of which the source tells

	emitted time.Time       // when last was emitted
	rest    time.Time       // no file that events name is looked at before
	scanAt  time.Time       // of the next scan
	asked   []chan struct{} // closed after it
	tickAt  time.Time
	ticks   int
	flockAt time.Time

	deaths *proc.Deaths
	died   map[int]bool    // processes that ended since the last step, by pid
	alive  map[int]int     // how many entries a living process holds, by pid
	sights map[sight]int   // how many entries depend on each
	ahead  map[*Entry]bool // entries with a stamp that only watching tells
	enlist bool            // alive has changed: the kernel is to be told

	due     dues      // when time alone changes a verdict, a heap
	passed  time.Time // when something was due last
	young   map[*tracked]map[key]youngster
	polls   map[pollOf]*poll    // that events told of
	pollers map[string][]Waiter // of those, who waits, by lock
	readAt  time.Time           // when a temp was read last because of an event
}

// tracked is what is known of one root.
type tracked struct {
	*rootLook // nil before the first look
	*tree

	queue []hint          // files that events named, in their order
	dirty map[string]bool // the same

	first, last time.Time // of the events of directories since the last look; zero: none
	rest        time.Time // the whole root is not looked at before
	nextAt      time.Time // when it is looked at in any case; zero: at the next scan
	named       time.Time // when all names were asked for
	refused     error     // why not all directories can be watched
	rewatch     bool      // every directory is to be named to the source again: its watch may have gone unseen
	every       time.Duration

	planned map[key]time.Time // when what time changes is due at the latest

	suspects map[string]time.Time // files found changed of which the kernel has not told, and until when it may
	deafAt   time.Time            // since when it is known not to tell; zero: it does
}

// hint is a file that an event named, and when it is to be looked at.
type hint struct {
	path string
	at   time.Time
}

// maxHints is how many files of a root are looked at one by one: of more, the whole root is.
const maxHints = 1 << 14

// stir has the whole root looked at soon.
func (r *tracked) stir(now time.Time) {
	if r.first.IsZero() {
		r.first = now
	}
	r.last = now
}

// touch has a file of the root looked at.
func (r *tracked) touch(path string, at time.Time) {
	switch {
	case r.dirty[path]:
	case len(r.queue) >= maxHints:
		r.stir(at)
	default:
		r.dirty[path] = true
		r.queue = append(r.queue, hint{path, at})
	}
}

// ready takes out the files that are to be looked at now.
func (r *tracked) ready(now time.Time) []string {
	n := 0
	for n < len(r.queue) && !r.queue[n].at.After(now) {
		n++
	}
	ready := make([]string, n)
	for i, h := range r.queue[:n] {
		ready[i] = h.path
		delete(r.dirty, h.path)
	}
	r.queue = append(r.queue[:0], r.queue[n:]...)
	return ready
}

// lookAt is when the whole root is to be looked at apart from scans.
func (r *tracked) lookAt() time.Time {
	at := r.nextAt
	if !r.first.IsZero() {
		at = earlier(at, earlier(r.last.Add(settle), r.first.Add(latency)))
	}
	return at
}

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
	for _, r := range e.roots {
		if look := r.lookAt(); !look.IsZero() {
			at = earlier(at, later(look, r.rest))
		}
		if len(r.queue) > 0 {
			at = earlier(at, later(r.queue[0].at, e.rest))
		}
		for _, until := range r.suspects {
			at = earlier(at, until)
		}
	}
	at = earlier(earlier(earlier(at, e.tickAt), earlier(e.flockAt, e.ripeAt())), earlier(e.dueAt(), e.pollsEnd()))
	if len(e.died) > 0 {
		at = e.emitted
	}
	return later(at, e.emitted.Add(emitGap))
}

// missed makes the next step look at everything: some events did not come through.
func (e *engine) missed(err error) {
	e.w.log().Warn("file events were lost", "error", err)
	now := time.Now()
	for _, r := range e.roots {
		r.stir(now)
		r.rewatch = true
		clear(r.suspects)
	}
	e.scanAt = now
}

// lose goes on without a source; the next scan asks for another one.
func (e *engine) lose(err error) {
	e.missed(err)
	_ = e.source.Close()
	e.source, e.noSource = nil, err
	clear(e.dirs)
}

// step does what is due.
func (e *engine) step(ctx context.Context) {
	now := time.Now()
	scan := !now.Before(e.scanAt)
	changed := e.last == nil
	if scan {
		spent := e.w.processorTime()
		changed = e.scan(ctx, now) || changed
		e.scanAt = time.Now().Add(min(max(scanGap, scanFactor*(e.w.processorTime()-spent)), rareScan))
	}
	changed = e.events(ctx, now) || changed
	changed = e.countPolls(now) || changed
	changed = e.bury(ctx) || changed
	changed = e.observe(ctx, now) || changed
	changed = e.pass(ctx, now) || changed
	changed = e.ripen(ctx, now) || changed
	changed = e.suspect(now) || changed
	if ctx.Err() != nil {
		return
	}
	if e.enlist {
		e.watchHolders()
	}
	if changed {
		e.show()
	}
	if scan {
		e.answer()
	}
}

// events looks at what events named, and at roots whose time has come. What emit does with its time is no reason to look
// less often.
func (e *engine) events(ctx context.Context, now time.Time) (changed bool) {
	for i, r := range e.roots {
		spent := e.w.processorTime()
		if at := r.lookAt(); !at.IsZero() && !now.Before(later(at, r.rest)) {
			changed = e.look(ctx, i) || changed
			r.rest = time.Now().Add(lookFactor * (e.w.processorTime() - spent))
		}
		if now.Before(e.rest) {
			continue
		}
		if ready := r.ready(now); len(ready) > 0 {
			if e.refresh(ctx, i, ready) {
				r.deafAt, changed = time.Time{}, true // the kernel tells
			}
			rest := restFactor * (e.w.processorTime() - spent)
			if len(ready) >= flow { // in a flow, to be woken by the events costs more than the looks
				rest = max(rest, flowRest)
			}
			e.rest = time.Now().Add(rest)
		}
	}
	return changed
}

// show emits a snapshot of what is known, unless it says nothing new.
func (e *engine) show() {
	s := e.draw()
	if e.last != nil && same(e.last, s) {
		return
	}
	s.Seq = e.w.seq.Add(1)
	e.last, e.emitted = s, time.Now()
	e.w.past.note(s)
	e.emit(s)
}

// draw makes a snapshot of what is known.
func (e *engine) draw() *Snapshot {
	looks, lists := make([]*rootLook, len(e.roots)), make([][]*Entry, len(e.roots))
	for i, r := range e.roots {
		e.tellMode(i)
		looks[i], lists[i] = r.rootLook, e.unripe(r)
	}
	return e.w.assemble(looks, lists, time.Now())
}
