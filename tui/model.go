package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"holdfast/fslock/proc"
	"holdfast/watch"
)

// model is the whole state of the screen. Only update changes it, at a moment that it is given; view draws it.
type model struct {
	// Fixed.
	paint    *paint
	keys     []group
	demo     string
	home     string
	readOnly bool
	holds    *holds
	describe func(ctx context.Context, pid int) (proc.Details, error)
	history  func(kind watch.Kind, path string) watch.History // nil: none is kept
	looked   func() int                                       // nil: nobody counts

	rescan    func(ctx context.Context) error // nil: there is no way
	exports   []Export
	exportDir string // "": the user's state directory

	// What is so.
	now      time.Time // the moment that is drawn; stands still while paused
	clock    time.Time // the moment of the last message
	w, h     int
	snap     *watch.Snapshot // drawn; nil: none came yet
	fresh    *watch.Snapshot // the newest; another than snap only while paused
	since    time.Time       // the moment of the first one
	soFar    int             // entries that were looked at before it came
	hidden   int             // changes that the pause hides
	later    []watch.Change  // those changes
	change   time.Time       // when the watcher should have something new at the latest; zero: never
	ended    bool            // there will be no more snapshots
	reason   error
	held     []held
	heldAt   uint64 // the version of held
	working  int    // changes that are under way
	sweeps   uint64 // plans of sweeps that were asked for
	checking bool   // what is held is being looked at
	scanning bool   // everything is being looked at again
	scanTold bool   // because somebody asked for it, who is told of the end
	events   []event
	renewals []event
	stuck    []*watch.Entry // of snap, the most urgent first
	tokens   int
	all      []*row            // every entry of snap, in its order
	spare    []*row            // the array that all had before
	index    map[ref]*row      // all
	litter   map[string][]*row // of all, the tokens and temps, by the lock that they belong to
	total    int               // of all, those that are not told with another one
	unshown  int               // of those, what the view and the filter leave out

	longestName   int // of all, with its marks, in cells
	longestHolder int // of all, in cells
	names         tally
	holders       tally

	// The list.
	rows     []*row   // those that are shown, in order
	sorted   ordering // the order of rows
	parts    bool     // what is told with its lock is listed too
	selected ref
	cursor   int
	top      int // the first row on the screen
	sort     Column
	reversed bool
	filter   filter
	shows    kindOfRows

	marked map[ref]bool // survives what the view and the filter leave out

	mouseless bool // the terminal has the mouse to itself

	// What is open.
	paused  bool
	input   *input // the filter's line, while it is typed
	palette *palette
	actions *actionList
	help    bool
	helpTop int
	dialog  *dialog
	zoomed  bool
	focused bool // keys scroll the detail
	tab     tab
	scroll  int // of the detail
	asked   int // the pid that was last asked about
	process described
	past    past

	note   note   // what the last action came to; the next key clears it
	losses []loss // stay until esc
}

// note is one line about what an action came to.
type note struct {
	text string // safe
	bad  bool
}

// command is what an update wants done beside it. Exactly one of run, copy, mouse, suspend and quit is set.
type command struct {
	run     func(context.Context) any // off the screen's goroutine; its result comes back as a message
	acts    bool                      // beside run: it changes files
	copy    string                    // into the clipboard
	mouse   mouseMode
	suspend bool
	quit    bool
}

// The messages, beside keyPress and delivery.
type (
	resized struct{ w, h int }
	checked struct{}
	tick    struct{}
	resumed struct{ refused bool } // after a suspension, or instead of one

	stopAsked struct{} // somebody sent SIGTSTP

	taken struct {
		plan target
		held held
		err  error
		now  holdings
	}
	broken struct {
		plan target
		err  error
	}
	planned struct {
		number uint64
		plan   *sweeping
	}
	released struct {
		plan target
		err  error
		now  holdings
	}
	described struct {
		pid     int
		details proc.Details
		err     error
		at      time.Time
	}
)

// update is the only place where the model changes. now is the moment of the message.
func (m *model) update(message any, now time.Time) []command {
	m.clock = now
	if !m.paused {
		m.now = now
	}
	var do []command
	switch msg := message.(type) {
	case resized:
		m.w, m.h = max(0, msg.w), max(0, msg.h)
	case keyPress:
		do = m.press(msg)
	case delivery:
		do = m.deliver(msg)
	case taken:
		m.working--
		m.takeDone(msg)
	case released:
		m.working--
		m.releaseDone(msg)
	case broken:
		m.working--
		m.breakDone(msg)
	case planned:
		m.sweepPlanned(msg)
	case swept:
		m.working--
		m.sweepDone(msg)
	case bundled:
		m.working--
		m.manyDone(msg)
	case checked:
		m.checking = false
	case looked:
		do = m.lookDone(msg)
	case rescanned:
		m.rescanDone(msg)
	case exported:
		m.exportDone(msg)
	case stopAsked:
		do = m.suspend()
	case described:
		if msg.pid == m.asked {
			m.process = msg
		}
	case resumed:
		if !m.mouseless {
			do = []command{{mouse: mouseOn}} // whoever had the terminal meanwhile was given it without
		}
		if msg.refused {
			m.complain("Not suspended: there is no shell that could make this screen go on.")
		}
	case pointing:
		do = m.point(msg)
	case tick:
	}
	if m.loading() {
		m.soFar = m.looked()
	}
	if m.dialog != nil {
		m.recheck(m.dialog)
	}
	m.recall()
	if m.actions != nil {
		m.recheckActions()
	}
	m.settle()
	return append(do, m.wants()...)
}

// deliver takes what the inbox brought. While paused, the picture stays and what it hides is counted.
func (m *model) deliver(d delivery) []command {
	m.holding(d.held)
	for _, lost := range d.losses {
		m.lose(lost)
	}
	m.ended, m.reason = d.ended, d.reason
	if d.snapshot == nil {
		return nil
	}
	m.fresh = d.snapshot
	if m.paused {
		m.later = append(m.later, d.changes...)
		if extra := len(m.later) - maxEvents; extra > 0 {
			m.later = m.later[extra:]
		}
		m.hidden += countChanges(d.changes)
	} else {
		m.show(d.changes)
	}
	return m.checkHolds()
}

// lose tells of a loss, also in place of what was said of the lease before.
func (m *model) lose(lost loss) {
	m.losses = append(m.losses, lost)
	m.complain("This screen does not hold %s any more.", m.lostName(lost))
}

// checkHolds has looked at what is held when the newest snapshot shows it gone or in other hands.
func (m *model) checkHolds() []command {
	doubtful := slices.ContainsFunc(m.held, func(h held) bool {
		e := m.find(h.ref)
		if e == nil || e.Holder() == nil {
			return true
		}
		return cmp.Or(e.Holder().ClaimID, e.Holder().WriterEpoch) != h.nonce
	})
	if !doubtful || m.checking {
		return nil
	}
	m.checking = true
	holds := m.holds
	return []command{{run: func(ctx context.Context) any {
		holds.check(ctx)
		return checked{}
	}}}
}

// holding takes over what is held, unless something newer is known.
func (m *model) holding(h holdings) {
	if h.version < m.heldAt {
		return
	}
	changed := h.version != m.heldAt
	m.held, m.heldAt = h.list, h.version
	if changed && m.all != nil {
		m.ownAll()
		m.refill() // what is this screen's is a view of its own, and a word of the filter
	}
}

// show makes the newest snapshot the one that is drawn.
func (m *model) show(changes []watch.Change) {
	older := m.snap
	m.snap = m.fresh
	if m.since.IsZero() {
		m.since = m.snap.Time
	}
	came, gone := m.follow(older)
	m.record(changes)
	m.dropMarks()
	m.refit(came, gone)
	if older == nil {
		m.goToStuck() // the first question is what that is
	}
}

// staleAfter is how much later than due a snapshot may come before the picture counts as stale.
const staleAfter = 10 * time.Second

// stale reports whether the picture cannot be trusted: the watcher has ended, or it does not bring what time
// alone must have changed, as when a file system hangs.
func (m *model) stale() bool {
	return m.ended || m.snap != nil && !m.paused && !m.change.IsZero() && m.now.Sub(m.change) > staleAfter
}

// settle puts everything back within its bounds after a change.
func (m *model) settle() {
	l := m.layout()
	m.top = max(0, min(m.top, len(m.rows)-1))
	// Where the list comes back to: what hides it for a while must not scroll it.
	if rows := arrange(m.w, m.h, l.notices.h, false).list.h - 1; rows > 0 {
		m.top = max(0, min(m.top, m.cursor, len(m.rows)-rows))
		m.top = max(m.top, m.cursor-rows+1)
	}
	if l.detail.h == 0 {
		m.focused = false
	}
	if m.scroll > 0 {
		m.scroll = min(m.scroll, max(0, len(m.detailLines(l.detail))-max(1, l.detail.h-1)))
	}
	if m.help {
		m.helpTop = max(0, min(m.helpTop, len(m.helpLines(m.w))-max(1, l.body.h-1)))
	}
}

// layout is where everything goes now.
func (m *model) layout() layout {
	return arrange(m.w, m.h, len(m.notices()), m.zoomed)
}

// wants are the jobs that follow from what is shown: a process whose tab is open is asked about, and again
// when the answer is old.
func (m *model) wants() []command {
	l := m.layout()
	pid := 0
	if r := m.current(); r != nil && m.tab == tabProcess && l.detail.h > 0 {
		pid = processOf(r.entry)
	}
	if pid == 0 {
		m.asked = 0
		return nil
	}
	if pid == m.asked && (m.process.pid != pid || m.clock.Sub(m.process.at) < processAge) {
		return nil // asked already, or known well enough
	}
	m.asked = pid
	if m.process.pid == pid {
		m.process.at = m.clock // asked now; the old answer is shown until the new one comes
	}
	describe, at := m.describe, m.clock
	return []command{{run: func(ctx context.Context) any {
		details, err := describe(ctx, pid)
		return described{pid: pid, details: details, err: err, at: at}
	}}}
}

// due is when the picture changes by time alone: at the next second while a short time is shown, at a
// change of verdict, or at the next minute for the clock in the header.
func (m *model) due() time.Time {
	next := m.clock.Truncate(time.Minute).Add(time.Minute)
	soon := func(t time.Time) {
		if t.After(m.clock) && t.Before(next) {
			next = t
		}
	}
	if d := m.dialog; d != nil {
		soon(d.opened.Add(dialogDeaf))
	}
	if m.loading() {
		soon(m.clock.Add(loadingGap))
	}
	if m.paused || m.snap == nil {
		return next
	}
	if !m.change.IsZero() {
		soon(m.change.Add(staleAfter + time.Millisecond))
	}
	second := m.clock.Truncate(time.Second).Add(time.Second)
	if m.stale() || m.zoomed && m.current() != nil || m.dialog != nil || m.palette != nil || m.actions != nil {
		soon(second)
	}
	l := m.layout()
	visible := m.rows[min(m.top, len(m.rows)):min(m.top+max(0, l.list.h-1), len(m.rows))]
	for _, r := range visible {
		if r.ticks(m.now) {
			soon(second)
		}
		soon(r.entry.Verdict.Changes)
	}
	if r := m.current(); r != nil && l.class != tiny && r.ticks(m.now) {
		soon(second)
	}
	return next
}

// loadingGap is how often the count of a first look is asked for.
const loadingGap = 250 * time.Millisecond

// loading reports whether the first look is under way and somebody counts what it has looked at.
func (m *model) loading() bool { return m.snap == nil && !m.ended && m.looked != nil }

// ticks reports whether what the list says of the row changes from second to second.
func (r *row) ticks(now time.Time) bool {
	if !r.beat.IsZero() && now.Sub(r.beat) <= time.Minute { // then it is told in minutes, and the clock's tick is enough
		return true
	}
	at := r.entry.Verdict.Claimable.At
	return !at.IsZero() && now.Sub(at).Abs() < 2*time.Minute
}

// hold returns the screen's own hold on the entry, nil if it has none.
func (m *model) hold(e *watch.Entry) *held {
	want := refOf(e)
	for i := range m.held {
		if m.held[i].ref == want {
			return &m.held[i]
		}
	}
	return nil
}

// say leaves a note.
func (m *model) say(format string, args ...any) {
	m.note = note{text: m.paint.Safe(fmt.Sprintf(format, args...))}
}

// complain leaves a note about something that did not work.
func (m *model) complain(format string, args ...any) {
	m.say(format, args...)
	m.note.bad = true
}

// causeFirst is an error with what the system said in front: the rest names paths, and its end may be cut.
func causeFirst(err error) string {
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		return cause.Error() + ": " + err.Error()
	}
	return err.Error()
}
