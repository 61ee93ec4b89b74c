package tui

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// held is a lease or lock that the screen holds, as the model knows it.
type held struct {
	ref   ref
	name  string // not made safe
	epoch uint64 // of a lease
	nonce string
}

// loss is what the screen held until somebody else did.
type loss struct {
	held
	err error
}

// holds keeps what the screen has taken: one goroutine each keeps it, and close joins them all. All work that changes
// files goes through it, so that close can end it.
type holds struct {
	library
	store    func(dir string) *lease.Store
	locker   *fslock.Locker // nil: no lock can be acquired or broken
	log      *audit.Log     // of what is broken or swept; nil: the user's own
	claimant lease.Claimant
	readOnly bool
	ring     func()                      // rings the inbox
	start    func(what string, f func()) // runs f in a goroutine that reports a panic

	ctx    context.Context //nolint:containedctx // it is the life of the goroutines that this value owns
	cancel context.CancelFunc
	work   sync.WaitGroup // changes under way, and the keepers

	mu      sync.Mutex
	closed  bool
	version uint64 // grows with every change of list
	list    []*hold
	losses  []loss
}

// holdings is what is held at one moment. Of two, the one with the higher version is newer.
type holdings struct {
	version uint64
	list    []held
}

type hold struct {
	held
	what      holding
	stop      context.CancelFunc
	kept      chan struct{} // closed when its keeper has returned
	releasing bool          // it is being given up, so that it is not there is no loss
}

// errClosing answers a claim that was still under way when the screen ended.
var errClosing = errors.New("the screen is ending")

// errNoLocker answers whoever would act on a lock where no locker was handed in.
var errNoLocker = errors.New("this screen was given nothing to change locks with")

// errChanged answers a plan whose entry is no longer what the plan was made for.
var errChanged = errors.New("changed since the plan was made; nothing was done")

// storeOf returns the store that the lease at that path belongs to; nil when there is none.
func storeOf(stores func(dir string) *lease.Store, path string) *lease.Store {
	if stores == nil {
		return nil
	}
	return stores(filepath.Dir(path))
}

// view returns what is held.
func (h *holds) view() holdings {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.viewLocked()
}

func (h *holds) viewLocked() holdings {
	v := holdings{h.version, make([]held, len(h.list))}
	for i, hold := range h.list {
		v.list[i] = hold.held
	}
	return v
}

// news returns what is held, and the losses since the last call.
func (h *holds) news() (holdings, []loss) {
	h.mu.Lock()
	defer h.mu.Unlock()
	losses := h.losses
	h.losses = nil
	return h.viewLocked(), losses
}

// begin counts work that close waits for; false when the screen is ending.
func (h *holds) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.work.Add(1)
	return true
}

// change begins a change that close cancels and waits for: end tells that it is over.
func (h *holds) change(ctx context.Context) (during context.Context, end func(), err error) {
	switch {
	case h.readOnly:
		return nil, nil, fslock.ErrReadOnly
	case !h.begin():
		return nil, nil, errClosing
	}
	during, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(h.ctx, cancel)
	return during, func() { unhook(); cancel(); h.work.Done() }, nil
}

// take takes what a plan was made for, if it is still as the plan says, and keeps it from then on.
func (h *holds) take(ctx context.Context, plan target) (held, error) {
	ctx, end, err := h.change(ctx)
	if err != nil {
		return held{}, err
	}
	defer end()
	var taken holding
	if plan.ref.kind == watch.Lock {
		taken, err = h.takeLock(ctx, plan)
	} else {
		taken, err = h.takeLease(ctx, plan)
	}
	if err != nil {
		return held{}, err
	}
	return h.keep(plan, taken)
}

func (h *holds) takeLease(ctx context.Context, plan target) (holding, error) {
	store := storeOf(h.store, plan.ref.path)
	if store == nil {
		return nil, errors.New("its directory is not known as one of leases")
	}
	info, err := store.Inspect(plan.id)
	if err != nil {
		return nil, err
	}
	if !plan.isLease(info) {
		return nil, errChanged
	}
	return h.claim(ctx, store, plan.id, h.claimant)
}

// Who takes a lock from a holder that is not proven dead has watched it unchanged first. An attempt waits for nothing
// and says how long that still takes: it is made again until the watch is over, and no longer.
const (
	watchEvery = time.Second // under the gap up to which two looks count as one watch
	watchLimit = 20 * time.Second
)

func (h *holds) takeLock(ctx context.Context, plan target) (holding, error) {
	if h.locker == nil {
		return nil, errNoLocker
	}
	if !plan.isLock(h.locker.Inspect(plan.ref.path)) {
		return nil, errChanged
	}
	for begun := time.Now(); ; {
		taken, err := h.acquire(h.locker, plan.ref.path)
		wait, watching := errors.AsType[*fslock.ConflictError](err)
		if !watching || wait.Left <= 0 || time.Since(begun) > watchLimit {
			return taken, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(watchEvery, wait.Left+time.Millisecond)):
		}
	}
}

// keep starts to keep what was just taken.
func (h *holds) keep(plan target, taken holding) (held, error) {
	ctx, stop := context.WithCancel(h.ctx)
	it := &hold{
		held: held{ref: plan.ref, name: plan.name, epoch: taken.Epoch(), nonce: taken.Nonce()},
		what: taken, stop: stop, kept: make(chan struct{}),
	}
	h.mu.Lock()
	if h.closed {
		// Nobody would keep it: it would look held for a while and then run out under whoever trusted it.
		h.mu.Unlock()
		stop()
		return held{}, errors.Join(errClosing, taken.Release())
	}
	h.list = append(h.list, it)
	h.version++
	h.work.Add(1)
	h.mu.Unlock()
	h.start("keeper of "+plan.name, func() {
		defer h.work.Done()
		defer close(it.kept)
		if err := taken.Keep(ctx); err != nil && ctx.Err() == nil {
			h.drop(it, err)
		}
	})
	h.ring()
	return it.held, nil
}

// drop forgets a hold, and tells of its loss, once, if there is an error.
func (h *holds) drop(it *hold, err error) {
	h.mu.Lock()
	had := len(h.list)
	h.list = slices.DeleteFunc(h.list, func(other *hold) bool { return other == it })
	h.version++
	if err != nil && !it.releasing && len(h.list) < had {
		h.losses = append(h.losses, loss{it.held, err})
	}
	h.mu.Unlock()
	it.stop()
	h.ring()
}

// check looks whether what is held is still held: a picture that says otherwise is not left to stand until the next
// renewal finds out.
func (h *holds) check(ctx context.Context) {
	h.mu.Lock()
	list := slices.Clone(h.list)
	h.mu.Unlock()
	for _, it := range list {
		err := it.what.Verify(ctx)
		if !isLost(err) {
			continue
		}
		h.mu.Lock()
		given := it.releasing
		h.mu.Unlock()
		if !given {
			h.drop(it, err)
		}
	}
}

// release gives up one hold, the one with that nonce and no other.
func (h *holds) release(plan target) error {
	switch {
	case h.readOnly:
		return fslock.ErrReadOnly
	case !h.begin():
		return errClosing
	}
	defer h.work.Done()
	h.mu.Lock()
	at := slices.IndexFunc(h.list, func(it *hold) bool { return it.ref == plan.ref && it.nonce == plan.nonce })
	var it *hold
	if at >= 0 {
		it = h.list[at]
		it.releasing = true
	}
	h.mu.Unlock()
	if it == nil {
		return errChanged
	}
	it.stop()
	<-it.kept
	err := it.what.Release()
	h.drop(it, nil)
	if err != nil {
		return fmt.Errorf("%w; nobody keeps it any more, so %s", err, it.runsOut())
	}
	return nil
}

// close ends all keeping, cancels what is under way and waits for it, releases everything and returns a clause about each.
// failed reports whether one could not be released. A second call has nothing left to do.
func (h *holds) close() (notes []string, failed bool) {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.work.Wait()

	h.mu.Lock()
	list := slices.Clone(h.list)
	h.mu.Unlock()
	notes = make([]string, len(list))
	errs := make([]error, len(list))
	var released sync.WaitGroup
	for i, it := range list {
		released.Go(func() {
			if errs[i] = it.what.Release(); errs[i] == nil {
				notes[i] = "released " + it.called()
				h.drop(it, nil)
				return
			}
			notes[i] = fmt.Sprintf("%s could not be released (%v); %s", it.called(), errs[i], it.runsOut())
		})
	}
	released.Wait()
	return notes, errors.Join(errs...) != nil
}

// called is what it is, and its name.
func (h held) called() string { return h.ref.kind.String() + " " + h.name }

// runsOut tells when what nobody keeps any more is over.
func (h held) runsOut() string {
	if h.ref.kind == watch.Lock {
		return "whoever comes next takes it once this process has ended"
	}
	return "it runs out by itself by " + time.Now().Add(verdict.LeaseTTL).Format(time.TimeOnly)
}

// expiry tells about what is still held when nobody waits for its release.
func (h *holds) expiry() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var notes []string
	for _, it := range h.list {
		notes = append(notes, fmt.Sprintf("%s is not released; %s", it.called(), it.runsOut()))
	}
	return notes
}
