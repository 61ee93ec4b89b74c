package fslock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/fslock/disktest"
)

// bareCycle makes the calls of a lock's life, without what the original forces to the disk.
func bareCycle(dir string, data []byte) func() error {
	temp, path := filepath.Join(dir, ".bare.tmp"), filepath.Join(dir, "bare")
	return func() error {
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Close(), os.Link(temp, path), os.Remove(temp)); err != nil {
			return err
		}
		if _, err := os.ReadFile(path); err != nil {
			return err
		}
		return os.Remove(path)
	}
}

func hold(b *testing.B, l *Locker, path string) *Lock {
	b.Helper()
	lock, err := l.Acquire(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	return lock
}

func BenchmarkAcquireRelease(b *testing.B) {
	disktest.Places(b, func(b *testing.B, dir string) {
		l, path := &Locker{}, filepath.Join(dir, "a.lock")
		lock := hold(b, l, path)
		data := lock.data
		if err := lock.Release(); err != nil {
			b.Fatal(err)
		}
		disktest.SideBySide(b, bareCycle(dir, data), func() error {
			lock, err := l.Acquire(b.Context(), path)
			if err != nil {
				return err
			}
			return lock.Release()
		})
	})
}

func BenchmarkTryHeld(b *testing.B) {
	heldBench(b, func(l *Locker, lock *Lock) error {
		if _, err := l.TryAcquire(lock.Path()); !errors.Is(err, ErrHeld) {
			return errors.Join(errors.New("it was not held"), err)
		}
		return nil
	})
}

func BenchmarkVerify(b *testing.B) {
	heldBench(b, func(_ *Locker, lock *Lock) error { return lock.Verify() })
}

func BenchmarkBeat(b *testing.B) {
	heldBench(b, func(_ *Locker, lock *Lock) error { return lock.beat("beat") })
}

// heldBench compares a call on a held lock with reading its file.
func heldBench(b *testing.B, ours func(l *Locker, lock *Lock) error) {
	b.Helper()
	disktest.Places(b, func(b *testing.B, dir string) {
		l := &Locker{}
		lock := hold(b, l, filepath.Join(dir, "a.lock"))
		defer func() { _ = lock.Release() }()
		old := time.Now().Add(-time.Second) // a record that was written just now is read twice
		if err := os.Chtimes(lock.Path(), old, old); err != nil {
			b.Fatal(err)
		}
		disktest.SideBySide(b, func() error {
			f, err := os.Open(lock.Path())
			if err != nil {
				return err
			}
			_, err = f.Read(make([]byte, 1024))
			return errors.Join(err, f.Close())
		}, func() error { return ours(l, lock) })
	})
}
