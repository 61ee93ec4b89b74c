package tui

import (
	"context"
	"sync"
	"time"

	"holdfast/watch"
)

// inboxGap is the least time between two deliveries to the screen: a thousand events a second cost no more than five, and
// nobody reads faster. One that comes alone is delivered at once.
const inboxGap = 200 * time.Millisecond

// inbox is the one slot between those who have news (the watcher, the keepers of leases) and the screen. Who
// has news never waits; what is overtaken before it was fetched is never shown.
type inbox struct {
	wake chan struct{} // one slot: there is news

	mu     sync.Mutex
	fresh  *watch.Snapshot // not yet fetched
	ended  bool
	reason error
	holds  func() (holdings, []loss)

	// Only the one outstanding fetch uses these.
	last    *watch.Snapshot
	fetched time.Time
}

// delivery is what one fetch brought.
type delivery struct {
	snapshot *watch.Snapshot // nil: no newer one
	changes  []watch.Change  // between the snapshot delivered before and this one
	held     holdings        // all leases that the screen holds
	losses   []loss          // since the last delivery
	ended    bool            // the watcher has stopped: there will be no more snapshots
	reason   error           // why it stopped; nil when unknown
}

func newInbox(holds func() (holdings, []loss)) *inbox {
	return &inbox{wake: make(chan struct{}, 1), holds: holds}
}

// put leaves a snapshot; one that is older than what is there is dropped.
func (b *inbox) put(s *watch.Snapshot) {
	b.mu.Lock()
	if s != nil && (b.fresh == nil || s.Seq >= b.fresh.Seq) {
		b.fresh = s
	}
	b.mu.Unlock()
	b.ring()
}

// end says that the watcher has stopped.
func (b *inbox) end(err error) {
	b.mu.Lock()
	b.ended, b.reason = true, err
	b.mu.Unlock()
	b.ring()
}

// ring says that there is news; a bell that rings already is enough.
func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// fetch waits for news, at least the gap after the last time, and returns it; nil when ctx ended. Only one call
// may be outstanding. The difference between two snapshots is computed here, beside the screen.
func (b *inbox) fetch(ctx context.Context) any {
	select {
	case <-ctx.Done():
		return nil
	case <-b.wake:
	}
	if wait := time.Until(b.fetched.Add(inboxGap)); wait > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
	b.fetched = time.Now()

	b.mu.Lock()
	d := delivery{snapshot: b.fresh, ended: b.ended, reason: b.reason}
	b.fresh = nil
	b.mu.Unlock()
	d.held, d.losses = b.holds()
	if d.snapshot != nil {
		if b.last != nil {
			d.changes = watch.Diff(b.last, d.snapshot)
		}
		b.last = d.snapshot
	}
	return d
}
