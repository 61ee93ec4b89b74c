package fslock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/fslock/verdict"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func acquire(t *testing.T, l *Locker, path string) *Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := l.Acquire(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	})
	return lock
}

func TestFreeLockIsTakenAndGivenUp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	l := &Locker{}
	lock := acquire(t, l, path)
	if got := names(t, dir); len(got) != 1 || got[0] != "a.lock" {
		t.Errorf("left beside the lock: %q", got)
	}
	if err := lock.Verify(); err != nil {
		t.Error(err)
	}
	info := l.Inspect(path)
	if info.Verdict.State != verdict.Live || !info.Verdict.Flags.Has(verdict.Mine) || info.Facts.Record.WriterEpoch != lock.WriterEpoch() {
		t.Errorf("seen as %v %v", info.Verdict.State, info.Verdict.Flags.Strings())
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
	if err := lock.Verify(); !errors.Is(err, ErrLost) {
		t.Errorf("released: %v", err)
	}
}

func TestHeldLockIsNotTakenAndOneOfManyWaitersIsNext(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	l := &Locker{}
	first := acquire(t, l, path)
	if _, err := l.TryAcquire(path); !errors.Is(err, ErrHeld) {
		t.Errorf("try: %v", err)
	}
	var inside, most, done atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			lock, err := (&Locker{}).Acquire(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			done.Add(1)
			inside.Add(-1)
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if most.Load() != 1 || done.Load() != 8 {
		t.Errorf("%d inside at once, %d got it", most.Load(), done.Load())
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// A lock in the place of a token would block others, and one in that of a flock file would be removed from under AgentMux.
func TestNamesThatAreNoLocks(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "agent.epoch"), []byte("7\n"), 0)
	put(t, filepath.Join(dir, "other.lease.json"), []byte("{}"), 0)
	put(t, filepath.Join(dir, "other.lock"), nil, time.Hour)
	before := names(t, dir)
	for _, name := range []string{".a.lock.reclaim", ".a.lock.tmp.1.2.3", "agent.lock", "other.lock"} {
		if _, err := (&Locker{}).TryAcquire(filepath.Join(dir, name)); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}
