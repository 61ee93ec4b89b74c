package watch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Whatever of an entry's files was changed, in place, in the same size and with its time set back, is read again.
func TestNothingThatWasChangedIsTakenForUnchanged(t *testing.T) {
	root := t.TempDir()
	leases, index := filepath.Join(root, "leases"), filepath.Join(root, "index", "k")
	self, at := proc.Local().Self(), time.Now().Add(-time.Hour)
	files := map[string]func(*Entry) bool{}
	write := func(path string, data []byte, of func(*Entry) bool) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		files[path] = of
	}
	lease, lock := newLease(self, "a", at), newLock(self, at)
	kind := func(k Kind) func(*Entry) bool { return func(e *Entry) bool { return e.Kind == k } }
	write(filepath.Join(leases, "a.lease.json"), lease.Encode(), kind(Lease))
	write(filepath.Join(leases, "a.epoch"), record.EncodeCounter(3), kind(Lease))
	write(filepath.Join(index, "x.lock"), lock.Encode(), kind(Lock))
	write(filepath.Join(index, ".x.lock.reclaim"), lock.Encode(), func(e *Entry) bool { return e.Kind == Lock || e.Kind == Token })
	write(filepath.Join(index, ".y.lock.tmp.7.1.0"), lock.Encode(), kind(Temp))
	time.Sleep(150 * time.Millisecond) // a stamp as new as the look is worth nothing
	for path, of := range files {
		w := &Watcher{Roots: []Root{{Path: root}}}
		entries := w.lookAt(t.Context(), 0, nil).entries
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.ToUpper(data)); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if f, free := e.Subject.(*verdict.LockFacts); free && f.Missing {
				continue // told by its temp alone
			}
			if got := unchanged(e, true); got == of(e) {
				t.Errorf("%s was changed, and %v %s is unchanged: %v", path, e.Kind, e.Path, got)
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
	}
}

func TestARootWithADarkPlaceIsNeverCalm(t *testing.T) {
	root := t.TempDir()
	putLock(t, filepath.Join(root, "index", "k", "a.lock"), newLock(proc.Local().Self(), time.Now()))
	time.Sleep(150 * time.Millisecond)
	w := &Watcher{Roots: []Root{{Path: root}}}
	r := &tracked{rootLook: w.lookAt(t.Context(), 0, nil)}
	if !r.isCalm() {
		t.Error("it changed by being looked at")
	}
	if r.fail(root, os.ErrPermission); r.isCalm() {
		t.Error("its error is not asked about")
	}
}

// Other people's files are told from locks by what is in them, also later.
func TestALockOfAPlainRootThatBecomesSomethingElseGoes(t *testing.T) {
	root := t.TempDir()
	lock := filepath.Join(root, "a.lock")
	putLock(t, lock, newLock(proc.Local().Self(), time.Now()))
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Live) })
	put(t, lock, []byte("[[package]]\n"))
	r.until(func(s *Snapshot) bool { return len(s.Entries) == 0 })
}

func TestARescanReadsWhatAScanTakesForUnchanged(t *testing.T) {
	root := t.TempDir()
	for i := range 5 {
		putLock(t, filepath.Join(root, "index", "k", fmt.Sprintf("%d.lock", i)), newLock(proc.Local().Self(), time.Now()))
	}
	time.Sleep(150 * time.Millisecond)
	w := &Watcher{Roots: []Root{{Path: root}}}
	r := start(t, w)
	defer r.stop()
	r.until(func(s *Snapshot) bool { return len(s.Entries) == 5 })
	time.Sleep(2 * latency) // what is watched only now is looked at once more
	before := w.Looked()
	if err := w.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.Looked() - before; n < 5 {
		t.Errorf("%d of 5 were read", n)
	}
}

// A directory that is exchanged for another one at once, and dies later, must not take the watch of the new one with it.
func TestARootThatIsExchangedAtOnceIsWatched(t *testing.T) {
	dir := t.TempDir()
	root, old := filepath.Join(dir, "root"), filepath.Join(dir, "old")
	lock := filepath.Join(root, "index", "k", "a.lock")
	l := newLock(proc.Local().Self(), time.Now())
	putLock(t, lock, l)
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	shows := func(nonce string) func(*Snapshot) bool {
		return func(s *Snapshot) bool {
			e := find(s, lock)
			return e != nil && e.Holder() != nil && e.Holder().WriterEpoch == nonce
		}
	}
	r.until(shows(l.WriterEpoch))
	for i := range 6 {
		next := filepath.Join(dir, "next")
		l.WriterEpoch = fmt.Sprint("new-", i)
		putLock(t, filepath.Join(next, "index", "k", "a.lock"), l)
		if err := os.Rename(root, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, root); err != nil {
			t.Fatal(err)
		}
		r.until(shows(l.WriterEpoch))
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(latency)
		l.WriterEpoch = fmt.Sprint("renewed-", i)
		begun := time.Now()
		putLock(t, lock, l)
		r.until(shows(l.WriterEpoch))
		if took := time.Since(begun); took > scanGap/2 {
			t.Fatalf("round %d: it was found by a scan after %v", i, took)
		}
	}
}

func TestALockThatItsHolderRewritesAllTheTimeIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.after(time.Second)
		lock := filepath.Join(b.root, "index", "a.lock")
		for range 10 {
			putLock(t, lock, newLock(b.who, time.Now()))
			b.source.wrote(lock)
			b.after(shortLived / 2)
		}
		if s := b.latest(); !is(s, lock, verdict.Live) {
			t.Errorf("got\n%s", lines(s))
		}
	}, func(_ *Watcher, b *bubble) {
		if err := os.Mkdir(filepath.Join(b.root, "index"), 0o755); err != nil {
			t.Fatal(err)
		}
	})
}
