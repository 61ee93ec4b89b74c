package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Lease is a claim that was granted. Its methods may be called at the same time.
type Lease struct {
	store        *Store
	id           string
	owner, block string
	claimID      string
	epoch        uint64
	rebuilt      bool // by Handle: only the claim id is known

	mu       sync.Mutex
	good     time.Duration // boot-time clock before the last good write
	lost     chan struct{}
	released chan struct{}
}

// Handle rebuilds the handle of a claim from its claim id, for a program that kept nothing else. It reads nothing;
// it never matches a record that has no claim id.
func (s *Store) Handle(id, claimID string) (*Lease, error) {
	if err := checkID("handle", id); err != nil {
		return nil, err
	}
	return &Lease{
		store: s, id: id, claimID: claimID, rebuilt: true,
		lost: make(chan struct{}), released: make(chan struct{}),
	}, nil
}

// ID returns the lease's id.
func (l *Lease) ID() string { return l.id }

// Epoch returns the fencing number of the claim; 0 for a handle that was rebuilt.
func (l *Lease) Epoch() uint64 { return l.epoch }

// ClaimID returns the fencing nonce of the claim.
func (l *Lease) ClaimID() string { return l.claimID }

// Path returns the path of the lease file.
func (l *Lease) Path() string { return l.store.path(l.id, leaseSuffix) }

// Lost returns a channel that is closed when the claim is known to be lost. Only Keep, Renew and Verify find out.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// ours reports whether r is the record of this claim. Older builds wrote no block or no claim id: the block then
// matches any of its owner, and so does the claim, but never for a handle that knows the claim id alone.
func (l *Lease) ours(r *record.Lease) bool {
	if l.rebuilt {
		return r.ClaimID != "" && r.ClaimID == l.claimID
	}
	return r.OwnerBootID == l.owner &&
		(r.BlockID == "" || r.BlockID == l.block) &&
		(r.ClaimID == "" || r.ClaimID == l.claimID)
}

// own gathers the facts and checks that the lease is still this claim's. The error matches ErrLost when it is
// missing or another's, ErrUnreadable when that cannot be told.
func (l *Lease) own(op string) (*verdict.LeaseFacts, error) {
	f, _ := l.store.gather(l.store.table(), l.id)
	switch {
	case f.Problem != nil:
		return nil, conflict(op, f, f.Judge(f.Look), ErrUnreadable)
	case f.Missing, !l.ours(f.Record):
		l.lose()
		return nil, conflict(op, f, f.Judge(f.Look), ErrLost)
	}
	return f, nil
}

// Verify reports whether the claim is still this handle's: nil, or an error that matches ErrLost, or ErrUnreadable
// when that cannot be told. A lease that ran out and that nobody took is still its own. It reads, and takes no lock.
func (l *Lease) Verify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &IOError{Op: "verify", ID: l.id, Path: l.Path(), Err: err}
	}
	if file, err := record.Read(l.Path()); err == nil {
		if r, err := record.DecodeLease(file.Path, file.Data); err == nil && l.ours(&r) {
			return nil
		}
	}
	_, err := l.own("verify")
	return err
}

// Renew extends the lease by a TTL from now, and revives one that ran out if nobody took it. ctx bounds the wait for
// the critical section, 5 s where it has no deadline. Errors match ErrLost, ErrUnreadable, ErrBusy or ErrReadOnly;
// after any but ErrLost the claim may still be held.
func (l *Lease) Renew(ctx context.Context) error {
	const op = "renew"
	s := l.store
	if s.ReadOnly {
		return refusedReadOnly(op, l.id)
	}
	leave, err := s.enter(ctx, op, l.id, enterLimit)
	if errors.Is(err, fs.ErrNotExist) {
		// Without its directory there is no critical section, and no lease.
		if _, lost := l.own(op); errors.Is(lost, ErrLost) {
			return lost
		}
	}
	if err != nil {
		return err
	}
	defer leave()
	f, err := l.own(op)
	if err != nil {
		return err
	}
	if err := s.at("owned"); err != nil {
		return &IOError{Op: op, ID: l.id, Path: l.Path(), Err: err}
	}
	stamp := s.bootClock()
	l.stamp(f, s.table().Self(), stamp)
	if err := s.write(op, l.id, f.Record); err != nil {
		return err
	}
	l.mu.Lock()
	l.good = stamp
	l.mu.Unlock()
	return nil
}

// stamp renews the record. What only its own process can say of itself is left alone when another one renews.
func (l *Lease) stamp(f *verdict.LeaseFacts, self proc.Self, boot time.Duration) {
	r := f.Record
	r.RenewedAtMS = time.Now().UnixMilli()
	switch {
	case f.Self:
		r.PIDStartS = self.StartUnix
		r.Ours = ours(self, boot)
	case self.BootID != "" && r.Ours.KernelBootID == self.BootID && r.Ours.TimeNS == self.TimeNS:
		r.Ours.BeatBootMS = bootMilli(boot)
	default:
		// The stamp of another boot or time namespace would tell an age that nobody measured.
		r.Ours.BeatBootMS = 0
	}
}

// Release gives the lease up: nil also when it was released before, is gone, is malformed, or is another's by now,
// which is left alone. It waits at most 2 s for the critical section. A handle that was rebuilt is refused with
// ErrHolderAlive while the recorded process is another one that runs, also when the lease ran out (it may revive it),
// or one of which that cannot be told and the lease has not run out. Other
// errors match ErrBusy, ErrUnreadable or ErrReadOnly, or are the system's; the lease then runs out by itself.
// Whatever Release returns, Keep ends, and Lost tells nothing any more.
func (l *Lease) Release() error {
	const op = "release"
	s := l.store
	if s.ReadOnly {
		return refusedReadOnly(op, l.id)
	}
	l.stop()
	leave, err := s.enter(context.Background(), op, l.id, releaseLimit)
	if err != nil {
		return err
	}
	defer leave()
	f, _ := s.gather(s.table(), l.id)
	v := f.Judge(f.Look)
	switch {
	case f.Problem != nil && f.Problem.Problem != record.Malformed:
		return conflict(op, f, v, ErrUnreadable)
	case f.Record == nil || !l.ours(f.Record):
		return nil
	case l.rebuilt && !f.Self && v.State != verdict.Dead && (v.State != verdict.Expired || f.Proc.Answer == proc.Alive):
		return conflict(op, f, v, ErrHolderAlive)
	}
	if err := s.raiseCounter(op, f, f.Record.Epoch); err != nil {
		return err
	}
	if err := s.at("removing"); err != nil {
		return &IOError{Op: op, ID: l.id, Path: f.Path, Err: err}
	}
	if err := os.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &IOError{Op: op, ID: l.id, Path: f.Path, Err: err}
	}
	return nil
}

func (l *Lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.lost:
	case <-l.released:
	default:
		close(l.lost)
	}
}

// stop tells Keep that the lease is being given up, so that a missing file is no loss.
func (l *Lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.released:
	default:
		close(l.released)
	}
}

// Keep renews the lease every interval until ctx ends or it is released (nil), or it is lost: an error that
// matches ErrLost, told by Lost at the same time. It blocks; run it once. The first renewal is due an interval after
// the last one that this handle made, at once if it made none.
//
// Another's claim or a missing file is a loss at once. Renewals that fail otherwise are tried again until the last
// good one is older than the TTL less one interval by the boot-time clock, which runs through suspend: so a holder
// hears of its loss before another may take the lease. A renewal that hangs in the system is told the same way, but
// Keep returns only when the system does. Having slept beyond that, one quick renewal is tried first: nobody may
// have come.
func (l *Lease) Keep(ctx context.Context) error {
	s := l.store
	if s.ReadOnly {
		return refusedReadOnly("keep", l.id)
	}
	interval, grace := s.interval(), s.ttl()-s.interval()
	// The next renewal is due an interval after the last one, whoever made that; after an unknown one, at once.
	wait, failures := max(0, interval-l.age()), 0
	l.mu.Lock()
	if l.good == 0 {
		l.good, wait = s.bootClock(), 0
	}
	l.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-l.released:
			return nil
		case <-timer.C:
		}
		err := l.renewInTime(ctx)
		switch {
		case err == nil:
			if failures > 0 {
				s.log().Info("lease renewal recovered", slog.String("id", l.id), slog.Int("failures", failures))
			}
			// Counted from the stamp: if the machine slept in the middle of this renewal, it is over by now.
			wait, failures = max(0, interval-l.age()), 0
			continue
		case isClosed(l.released), ctx.Err() != nil && !errors.Is(err, ErrLost):
			return nil
		case errors.Is(err, ErrLost) || l.age() > grace:
			l.lose()
			s.log().Error("lost lease", slog.String("id", l.id), slog.Uint64("epoch", l.epoch), slog.Any("error", err))
			if !errors.Is(err, ErrLost) {
				err = fmt.Errorf("%w: not renewed for %v: %w", ErrLost, l.age().Round(time.Millisecond), err)
			}
			return err
		}
		failures++
		s.log().Warn("lease renewal failed", slog.String("id", l.id), slog.Int("failures", failures), slog.Any("error", err))
		// A fifth of the interval, but never past the moment at which the loss must be told.
		wait = max(time.Millisecond, min(interval/5, grace-l.age()+time.Millisecond))
	}
}

// renewInTime is one renewal within what is left of the lease, or one quick one when it is late already. The loss is
// told when that time is over even if the system has not answered.
func (l *Lease) renewInTime(ctx context.Context) error {
	interval := l.store.interval()
	limit := l.store.ttl() - interval*4/5 - l.age()
	if l.age() > l.store.ttl()-interval {
		limit = interval / 5
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Half a retry later than the context, so that a renewal which is merely refused can say so itself.
	watchdog := time.AfterFunc(limit+interval/10, l.lose)
	err := l.Renew(ctx)
	if inTime := watchdog.Stop(); err == nil && (!inTime || isClosed(l.lost)) {
		// The loss was told, so the program has stopped: that the disk says otherwise by now is no use to it.
		return fmt.Errorf("%w: renewed too late", ErrLost)
	}
	return err
}

func (l *Lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store.bootClock() - l.good
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
