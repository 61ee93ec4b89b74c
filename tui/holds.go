package tui

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// holding is a lease that was claimed; *lease.Lease is one.
type holding interface {
	Epoch() uint64
	ClaimID() string
	Verify(ctx context.Context) error
	Keep(ctx context.Context) error
	Release() error
}

type claimFunc func(ctx context.Context, store *lease.Store, id string, c lease.Claimant) (holding, error)

func claimLease(ctx context.Context, store *lease.Store, id string, c lease.Claimant) (holding, error) {
	l, err := store.Claim(ctx, id, c)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// held is a lease that the screen holds, as the model knows it.
type held struct {
	ref     ref
	id      string
	epoch   uint64
	claimID string
}

// loss is a lease that the screen held until somebody else did.
type loss struct {
	held
	err error
}

// holds keeps the leases that the screen has claimed: one goroutine each renews it, and close joins them all.
type holds struct {
	store    func(dir string) *lease.Store
	claimant lease.Claimant
	readOnly bool
	take     claimFunc
	ring     func()                      // rings the inbox
	start    func(what string, f func()) // runs f in a goroutine that reports a panic

	ctx    context.Context //nolint:containedctx // it is the life of the goroutines that this value owns
	cancel context.CancelFunc
	work   sync.WaitGroup // claims and releases under way, and the keepers

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
	lease     holding
	stop      context.CancelFunc
	kept      chan struct{} // closed when its keeper has returned
	releasing bool          // it is being given up, so that it is not there is no loss
}

// errClosing answers a claim that was still under way when the screen ended.
var errClosing = errors.New("the screen is ending")

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

// claim takes the lease that a plan was made for, if it is still as the plan says, and keeps it from then on.
func (h *holds) claim(ctx context.Context, plan target) (held, error) {
	if h.readOnly {
		return held{}, lease.ErrReadOnly
	}
	store := storeOf(h.store, plan.ref.path)
	if store == nil {
		return held{}, fmt.Errorf("claim %s: its directory is not known as one of leases", plan.id)
	}
	if !h.begin() {
		return held{}, errClosing
	}
	defer h.work.Done()
	info, err := store.Inspect(plan.id)
	if err != nil {
		return held{}, err
	}
	if now := fingerprint(info.Verdict, info.Facts.Holder(), info.Epoch, info.Raw); now != plan.fingerprint {
		return held{}, errChanged
	}
	taken, err := h.take(ctx, store, plan.id, h.claimant)
	if err != nil {
		return held{}, err
	}
	return h.keep(plan, taken)
}

// keep starts to renew a lease that was just claimed.
func (h *holds) keep(plan target, taken holding) (held, error) {
	ctx, stop := context.WithCancel(h.ctx)
	it := &hold{
		held:  held{ref: plan.ref, id: plan.id, epoch: taken.Epoch(), claimID: taken.ClaimID()},
		lease: taken, stop: stop, kept: make(chan struct{}),
	}
	h.mu.Lock()
	if h.closed {
		// Nobody would renew it: it would look held for a TTL and then run out under whoever trusted it.
		h.mu.Unlock()
		stop()
		return held{}, errors.Join(errClosing, taken.Release())
	}
	h.list = append(h.list, it)
	h.version++
	h.work.Add(1)
	h.mu.Unlock()
	h.start("keeper of "+plan.id, func() {
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
		err := it.lease.Verify(ctx)
		if !errors.Is(err, lease.ErrLost) {
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

// release gives up one hold, the one with that claim id and no other.
func (h *holds) release(plan target) error {
	if h.readOnly {
		return lease.ErrReadOnly
	}
	if !h.begin() {
		return errClosing
	}
	defer h.work.Done()
	h.mu.Lock()
	at := slices.IndexFunc(h.list, func(it *hold) bool { return it.ref == plan.ref && it.claimID == plan.claimID })
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
	err := it.lease.Release()
	h.drop(it, nil)
	if err != nil {
		return fmt.Errorf("%w; nobody renews it any more, so %s", err, runsOut())
	}
	return nil
}

// close ends all renewing, waits for what is under way, releases everything and returns a clause about each.
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
			if errs[i] = it.lease.Release(); errs[i] == nil {
				notes[i] = "released lease " + it.id
				h.drop(it, nil)
				return
			}
			notes[i] = fmt.Sprintf("lease %s could not be released (%v); %s", it.id, errs[i], runsOut())
		})
	}
	released.Wait()
	return notes, errors.Join(errs...) != nil
}

// runsOut tells when what nobody renews any more is over.
func runsOut() string {
	return "it runs out by itself by " + time.Now().Add(verdict.LeaseTTL).Format(time.TimeOnly)
}

// expiry tells about what is still held when nobody waits for its release.
func (h *holds) expiry() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var notes []string
	for _, it := range h.list {
		notes = append(notes, fmt.Sprintf("lease %s is not released; %s", it.id, runsOut()))
	}
	return notes
}

// target is what a plan is about: fixed when the plan is made, whatever the list shows later.
type target struct {
	ref         ref
	id          string
	claimID     string
	fingerprint string
}

// targetOf fixes an entry as it is at now.
func targetOf(e *watch.Entry, now time.Time) target {
	t, holder := target{ref: refOf(e), id: e.ID}, e.Holder()
	if holder != nil {
		t.claimID = holder.ClaimID
	}
	t.fingerprint = fingerprint(e.Judge(now), holder, e.Epoch, e.Raw)
	return t
}

// fingerprint is the identity and state of an entry: two are equal when nothing happened but time and beats.
func fingerprint(v verdict.Verdict, h *verdict.Holder, epoch uint64, raw []byte) string {
	who := "nobody"
	switch {
	case h != nil:
		who = fmt.Sprintf("%d %q %q %q %q %q %d", h.PID, h.Host, h.OwnerBootID, h.BlockID, h.ClaimID, h.WriterEpoch,
			h.Acquired.UnixMilli())
	case len(raw) > 0:
		who = fmt.Sprintf("%x", raw)
	}
	return fmt.Sprintf("%v/%v/%v/%d/%s", v.State, v.Cause, v.Claimable.When, epoch, who)
}
