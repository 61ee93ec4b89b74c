package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

func TestWhatIsOutOfSightStaysAsItWasSeenLast(t *testing.T) {
	dir := t.TempDir()
	root, away := filepath.Join(dir, "root"), filepath.Join(dir, "away")
	who, kill := startHolder(t)
	lock := filepath.Join(root, "index", "k", "a.lock")
	putLease(t, filepath.Join(root, "leases"), newLease(who, "a", time.Now()))
	putLock(t, lock, newLock(who, time.Now()))
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	before := r.until(func(s *Snapshot) bool { return len(s.Entries) == 2 && is(s, lock, verdict.Live) })

	if err := os.Rename(root, away); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("root", root); err != nil { // it leads to itself
		t.Fatal(err)
	}
	unseen := func(s *Snapshot) bool {
		return len(s.Entries) == 2 && !slices.ContainsFunc(s.Entries, func(e *Entry) bool { return e.Unseen.IsZero() })
	}
	hidden := r.until(unseen)
	kill()
	time.Sleep(2 * tick)
	if s := r.latest(); !unseen(s) || !is(s, lock, verdict.Live) || len(s.Errors) != 1 {
		t.Errorf("got\n%s", lines(s))
	}
	for _, e := range hidden.Entries {
		if v := e.Judge(time.Now().Add(time.Hour)); v.State != verdict.Live || !v.Changes.IsZero() || !e.Verdict.Changes.IsZero() {
			t.Errorf("time goes on for %s: %v, %v", e.Path, v.State, v.Changes)
		}
	}
	for _, c := range Diff(before, hidden) {
		if c.Event != Watch || strings.Contains(c.Sentence, "nother directory") {
			t.Errorf("it is told: %+v", c)
		}
	}

	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(away, "leases", "a.lease.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, root); err != nil {
		t.Fatal(err)
	}
	s := r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Dead) })
	if e := find(s, lock); !e.Unseen.IsZero() || !is(s, filepath.Join(root, "leases", "a.lease.json"), verdict.Free) {
		t.Errorf("seen again\n%s", lines(s))
	}
}

func TestALockOf20MillisecondsIsNeverShown(t *testing.T) {
	root := t.TempDir()
	short, long := filepath.Join(root, "short.lock"), filepath.Join(root, "long.lock")
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	r.until(func(*Snapshot) bool { return true })
	brief := make(map[string]bool) // those that a busy machine did not keep for longer
	for i := range 60 {
		l := newLock(proc.Local().Self(), time.Now())
		l.WriterEpoch = fmt.Sprint(i)
		begun := time.Now()
		putLock(t, short, l)
		time.Sleep(20 * time.Millisecond)
		remove(t, short)
		brief[l.WriterEpoch] = time.Since(begun) < shortLived-5*time.Millisecond
		time.Sleep(5 * time.Millisecond)
	}
	putLock(t, long, newLock(proc.Local().Self(), time.Now()))
	r.until(func(s *Snapshot) bool { return is(s, long, verdict.Live) })
	for _, s := range r.all() {
		if e := find(s, short); e != nil && brief[e.Holder().WriterEpoch] {
			t.Fatalf("it is shown:\n%s", lines(s))
		}
	}
}

// Another machine may write so that no time of a file moves that this one is told.
func TestStampsCountOnlyOnALocalFileSystem(t *testing.T) {
	root := t.TempDir()
	lock := filepath.Join(root, "a.lock")
	putLock(t, lock, newLock(proc.Local().Self(), time.Now()))
	at := time.Now().Add(-time.Hour)
	if err := os.Chtimes(lock, at, at); err != nil {
		t.Fatal(err)
	}
	time.Sleep(150 * time.Millisecond) // a stamp as new as the look is worth nothing
	for _, local := range []bool{true, false} {
		w := &Watcher{Roots: []Root{{Path: root}}, fsOf: func(string) (string, bool) { return "x", local }}
		first := w.lookAt(t.Context(), 0, nil).entries[0]
		again := w.lookAt(t.Context(), 0, func(key) *Entry { return first }).entries[0]
		if (again == first) != local {
			t.Errorf("local: %v, and it was taken over: %v", local, again == first)
		}
	}
}

// sizes are those of all that an engine keeps.
func (e *engine) sizes() map[string]int {
	r := e.roots[0]
	all := map[string]int{
		"dirs": len(e.dirs), "died": len(e.died), "alive": len(e.alive), "sights": len(e.sights), "ahead": len(e.ahead),
		"due": len(e.due), "planned": len(r.planned), "young": 0, "polls": len(e.polls), "pollers": len(e.pollers), "queue": len(r.queue), "dirty": len(r.dirty),
		"suspects": len(r.suspects), "index": len(r.index), "beside": len(r.beside), "sorted": len(r.sorted),
		"trails": len(e.w.past.all), "gone": len(e.w.past.gone),
	}
	for _, young := range e.young {
		all["young"] += len(young)
	}
	return all
}

func TestADayOfChurnLeavesNothingBehind(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		world, told := machine(), newTold()
		who := holderOn(world)
		w := &Watcher{
			Roots: []Root{{Path: root}}, Table: world.Table(),
			open:  func() (s source, err error) { return told, nil },
			fsOf:  func(string) (string, bool) { return "ext4", true },
			spent: func() time.Duration { return 0 },
		}
		leases, index := filepath.Join(root, "leases"), filepath.Join(root, "index", "k")
		putLease(t, leases, newLease(who, "a", time.Now()))
		putLock(t, filepath.Join(index, "kept.lock"), newLock(who, time.Now()))
		ctx, cancel := context.WithCancel(t.Context())
		e := w.engine(func(*Snapshot) {})
		ended := make(chan error, 1)
		go func() { ended <- e.run(ctx) }()
		synctest.Wait()

		n := 0
		churn := func(d time.Duration) map[string]int {
			for until := time.Now().Add(d); time.Now().Before(until); n++ {
				l := newLease(who, "a", time.Now())
				put(t, filepath.Join(leases, "a.lease.json"), l.Encode())
				told.wrote(filepath.Join(leases, "a.lease.json"))
				lock := filepath.Join(index, fmt.Sprintf("%d.lock", n))
				own := filepath.Join(index, fmt.Sprintf(".%d.lock.tmp.%d.1.%d", n, who.PID, n))
				for _, path := range []string{own, lock} {
					putLock(t, path, newLock(who, time.Now()))
					told.wrote(path)
					time.Sleep(time.Second)
				}
				for _, path := range []string{own, lock} {
					remove(t, path)
					told.wrote(path)
				}
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			return e.sizes()
		}
		hour := churn(time.Hour)
		for what, is := range churn(23 * time.Hour) {
			if is > hour[what]+2 {
				t.Errorf("%s: %d after an hour, %d after a day", what, hour[what], is)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestARenamedFolderLeavesTheKernelBelieved(t *testing.T) {
	root := t.TempDir()
	for i := range 3 {
		putLock(t, filepath.Join(root, "index", fmt.Sprint(i), "a.lock"), newLock(proc.Local().Self(), time.Now()))
	}
	if err := os.Mkdir(filepath.Join(root, "inspect"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	r.until(func(s *Snapshot) bool { return len(s.Entries) == 3 })
	time.Sleep(shortLived)
	if err := os.Rename(filepath.Join(root, "index"), filepath.Join(root, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	r.until(func(s *Snapshot) bool { return len(s.Entries) == 0 })
	time.Sleep(hearsay + tick)
	for _, s := range r.all() {
		if s.Roots[0].Watch != eventMode && eventMode == "inotify" {
			t.Fatalf("it is watched by %s: %s", s.Roots[0].Watch, s.Roots[0].Reason)
		}
	}
}

func TestAKernelThatWasDeafIsBelievedAgainAfterAQuietMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		time.Sleep(time.Second)
		putLease(t, b.leases, newLease(b.who, "a", time.Now()))
		if s := b.after(scanGap + hearsay); s.Roots[0].Watch != pollMode {
			t.Fatalf("got %+v", s.Roots[0])
		}
		if s := b.after(trust - 10*time.Second); s.Roots[0].Watch != pollMode {
			t.Errorf("too soon: %+v", s.Roots[0])
		}
		if s := b.after(10*time.Second + hearsay + 2*pollGap); s.Roots[0].Watch != eventMode {
			t.Errorf("got %+v", s.Roots[0])
		}
	})
}

// What is mounted, unmounted or turned makes no event: a directory is another one, and nobody says so.
func TestADirectoryInAnothersPlaceIsSeenWithoutAnEventAndBeforeAnyScan(t *testing.T) {
	for _, what := range []string{"", "leases"} {
		inBubble(t, func(t *testing.T, b *bubble) {
			t.Helper()
			b.after(2 * scanGap)
			place := filepath.Join(b.root, what)
			if err := os.Rename(place, place+".old"); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(place + ".old") }()
			putLease(t, b.leases, newLease(b.who, "b", time.Now()))
			s := b.after(tick + latency)
			if find(s, b.lease("a")) != nil || !is(s, b.lease("b"), verdict.Live) {
				t.Errorf("%q after %v\n%s", what, tick+latency, lines(s))
			}
		}, func(_ *Watcher, b *bubble) { put(t, filepath.Join(b.leases, "a.epoch"), []byte("7\n")) })
	}
}
