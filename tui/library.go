package tui

import (
	"context"
	"errors"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
)

// library is every call that changes a file. The screen makes no other.
type library struct {
	claim       func(ctx context.Context, store *lease.Store, id string, c lease.Claimant) (holding, error)
	acquire     func(locker *fslock.Locker, path string) (holding, error) // one attempt
	breakLease  func(ctx context.Context, store *lease.Store, info lease.Info, r lease.Removal) error
	breakLock   func(ctx context.Context, locker *fslock.Locker, info fslock.Info, r fslock.Removal) error
	removeToken func(ctx context.Context, locker *fslock.Locker, info fslock.TokenInfo, r fslock.Removal) error
	sweeper     func(root string, temps bool, locker *fslock.Locker, log *audit.Log) sweeper
}

// sweeper plans and runs; *sweep.Sweeper is one.
type sweeper interface {
	Plan(ctx context.Context) (sweep.Plan, error)
	Run(ctx context.Context, plan sweep.Plan) (sweep.Report, error)
}

// whole is the library with the real call wherever a test has put none.
func (l library) whole() library {
	if l.claim == nil {
		l.claim = claimLease
	}
	if l.acquire == nil {
		l.acquire = acquireLock
	}
	if l.breakLease == nil {
		l.breakLease = func(ctx context.Context, store *lease.Store, info lease.Info, r lease.Removal) error {
			return store.Break(ctx, info, r)
		}
	}
	if l.breakLock == nil {
		l.breakLock = func(ctx context.Context, locker *fslock.Locker, info fslock.Info, r fslock.Removal) error {
			return locker.Break(ctx, info, r)
		}
	}
	if l.removeToken == nil {
		l.removeToken = func(ctx context.Context, locker *fslock.Locker, info fslock.TokenInfo, r fslock.Removal) error {
			return locker.RemoveToken(ctx, info, r)
		}
	}
	if l.sweeper == nil {
		l.sweeper = func(root string, temps bool, locker *fslock.Locker, log *audit.Log) sweeper {
			return &sweep.Sweeper{Root: root, Temps: temps, Locker: locker, Audit: log}
		}
	}
	return l
}

// holding is a lease that was claimed or a lock that was acquired.
type holding interface {
	Epoch() uint64                    // of a lease; 0 for a lock
	Nonce() string                    // claim id or writer epoch
	Verify(ctx context.Context) error // isLost when it is not this screen's any more
	Keep(ctx context.Context) error   // keeps it until ctx ends, or until it is lost: the reason
	Release() error
}

type leaseHeld struct{ *lease.Lease }

func (l leaseHeld) Nonce() string { return l.ClaimID() }

func claimLease(ctx context.Context, store *lease.Store, id string, c lease.Claimant) (holding, error) {
	l, err := store.Claim(ctx, id, c)
	if err != nil {
		return nil, err
	}
	return leaseHeld{l}, nil
}

// lockHeld is a lock, which beats by itself.
type lockHeld struct{ *fslock.Lock }

func (l lockHeld) Epoch() uint64                { return 0 }
func (l lockHeld) Nonce() string                { return l.WriterEpoch() }
func (l lockHeld) Verify(context.Context) error { return l.Lock.Verify() }

func (l lockHeld) Keep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.Lost():
	}
	if err := l.Lock.Verify(); err != nil {
		return err
	}
	return fslock.ErrLost
}

func acquireLock(locker *fslock.Locker, path string) (holding, error) {
	l, err := locker.TryAcquire(path)
	if err != nil {
		return nil, err
	}
	return lockHeld{l}, nil
}

func isLost(err error) bool { return errors.Is(err, lease.ErrLost) || errors.Is(err, fslock.ErrLost) }

// taker returns who a loss was to; nil: nobody, its file is gone. ok is false when the error does not say.
func taker(err error) (who *verdict.Holder, ok bool) {
	if e, is := errors.AsType[*lease.ConflictError](err); is && errors.Is(e.Err, lease.ErrLost) {
		return e.Holder, true
	}
	if e, is := errors.AsType[*fslock.ConflictError](err); is && errors.Is(e.Err, fslock.ErrLost) {
		return e.Holder, true
	}
	return nil, false
}
