package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

// running is a Run whose snapshots are kept.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
	news   chan struct{} // one slot

	mu        sync.Mutex
	snapshots []*Snapshot
	texts     []string // of each when it was emitted
	times     []time.Time
}

// whole tells all of a snapshot that a look or time could change.
func whole(s *Snapshot) string {
	text := fmt.Sprint(s.Seq, s.Time.UnixNano(), s.Roots, s.Errors)
	for _, e := range s.Entries {
		v := e.Verdict
		text += fmt.Sprintf("\n%v %s %q %v %q %v %v %d %v %v %x", e.Kind, e.Path, e.Name, v.State, v.Sentence, v.Flags, v.Claimable,
			e.Epoch, e.Waiters, e.Hidden, e.Raw)
		if e.Token != nil {
			text += fmt.Sprint(*e.Token)
		}
	}
	return text
}

// start starts w and checks what Run promises of every emission.
func start(t *testing.T, w *Watcher) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, cancel: cancel, ended: make(chan error, 1), news: make(chan struct{}, 1)}
	var inside atomic.Int32
	go func() {
		r.ended <- w.Run(ctx, func(s *Snapshot) {
			if inside.Add(1) != 1 {
				t.Error("emit is called twice at a time")
			}
			defer inside.Add(-1)
			r.mu.Lock()
			defer r.mu.Unlock()
			now := time.Now()
			if n := len(r.snapshots); n > 0 {
				if s.Seq <= r.snapshots[n-1].Seq {
					t.Errorf("snapshot %d comes after %d", s.Seq, r.snapshots[n-1].Seq)
				}
				if gap := now.Sub(r.times[n-1]); gap < emitGap/2 {
					t.Errorf("two snapshots within %v", gap)
				}
				if same(r.snapshots[n-1], s) {
					t.Errorf("snapshot %d says nothing new", s.Seq)
				}
			}
			r.snapshots, r.times, r.texts = append(r.snapshots, s), append(r.times, now), append(r.texts, whole(s))
			select {
			case r.news <- struct{}{}:
			default:
			}
		})
	}()
	return r
}

// until waits for a snapshot of which ok is true and returns it.
func (r *running) until(ok func(*Snapshot) bool) *Snapshot {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		if s := r.latest(); s != nil && ok(s) {
			return s
		}
		select {
		case <-r.news:
		case <-deadline:
			r.cancel()
			if s := r.latest(); s != nil {
				r.t.Fatalf("never; the last snapshot is\n%s", lines(s))
			}
			r.t.Fatal("there was no snapshot")
		}
	}
}

func (r *running) latest() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.snapshots) == 0 {
		return nil
	}
	return r.snapshots[len(r.snapshots)-1]
}

// all are the snapshots till now.
func (r *running) all() []*Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.snapshots)
}

func (r *running) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.snapshots)
}

func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run returned %v", err)
	}
	for i, s := range r.snapshots {
		if is := whole(s); is != r.texts[i] {
			r.t.Errorf("snapshot %d was changed after it was emitted, from\n%s\nto\n%s", s.Seq, r.texts[i], is)
		}
	}
}

func TestALeaseThatAppearsChangesAndVanishesIsSeen(t *testing.T) {
	defer goleak.VerifyNone(t)
	root := t.TempDir()
	leases := filepath.Join(root, "leases")
	if err := os.Mkdir(leases, 0o755); err != nil {
		t.Fatal(err)
	}
	self := proc.Local().Self()
	r := start(t, &Watcher{Roots: []Root{{Path: root, ChosenBy: "argument"}}})
	defer r.stop()
	first := r.until(func(s *Snapshot) bool { return true })
	if first.Roots[0].Kind != "agentmux" || len(first.Entries) != 0 || first.Roots[0].ChosenBy != "argument" {
		t.Fatalf("at first there is\n%s", lines(first))
	}
	if root := first.Roots[0]; root.Local && root.Watch != eventMode {
		t.Errorf("watched by %q: %s", root.Watch, root.Reason)
	}

	l := newLease(self, "a", time.Now())
	path := filepath.Join(leases, "a.lease.json")
	began := time.Now()
	putLease(t, leases, l)
	appeared := r.until(func(s *Snapshot) bool { return is(s, path, verdict.Live) })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v to be seen", took)
	}
	l.RenewedAtMS, l.Version = time.Now().UnixMilli(), "0.58"
	putLease(t, leases, l)
	changed := r.until(func(s *Snapshot) bool { e := find(s, path); return e != nil && e.Subject.Holder().Version == "0.58" })
	remove(t, path)
	freed := r.until(func(s *Snapshot) bool { return is(s, path, verdict.Free) })
	remove(t, filepath.Join(leases, "a.epoch"))
	gone := r.until(func(s *Snapshot) bool { return find(s, path) == nil })

	for _, c := range []struct {
		from, to *Snapshot
		want     string
	}{{first, appeared, Appeared}, {appeared, changed, Renewed}, {changed, freed, Changed}, {freed, gone, Gone}} {
		changes := Diff(c.from, c.to)
		if len(changes) != 1 || changes[0].Event != c.want || changes[0].Path != path {
			t.Errorf("changes are %+v, not %s", changes, c.want)
		}
	}
}

func TestAKilledHolderIsDeadWithoutAnyFileEvent(t *testing.T) {
	defer goleak.VerifyNone(t)
	root := t.TempDir()
	lock := filepath.Join(root, "index", "8eb3", "cache.lock")
	leases := filepath.Join(root, "leases")
	who, kill := startHolder(t)
	putLock(t, lock, newLock(who, time.Now()))
	putLease(t, leases, newLease(who, "a", time.Now()))
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	lease := filepath.Join(leases, "a.lease.json")
	r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Live) && is(s, lease, verdict.Live) })
	kill()
	s := r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Dead) && is(s, lease, verdict.Dead) })
	if e := find(s, lock); e.Verdict.Cause != string(proc.Gone) {
		t.Errorf("it died of %q", e.Verdict.Cause)
	}
}

func TestALeaseRunsOutWithoutAnyFileEvent(t *testing.T) {
	defer goleak.VerifyNone(t)
	root := t.TempDir()
	leases := filepath.Join(root, "leases")
	l := newLease(proc.Local().Self(), "a", time.Now().Add(-verdict.LeaseTTL+2*time.Second))
	putLease(t, leases, l)
	path := filepath.Join(leases, "a.lease.json")
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	r.until(func(s *Snapshot) bool { return is(s, path, verdict.Late) })
	s := r.until(func(s *Snapshot) bool { return is(s, path, verdict.Expired) })
	if late := s.Time.Sub(verdict.Milli(l.RenewedAtMS).Add(verdict.LeaseTTL)); late < 0 || late > time.Second {
		t.Errorf("it ran out %v after its time", late)
	}
}

func TestAMissingRootIsWaitedForAndAReplacedOnePickedUp(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	root, other := filepath.Join(dir, "root"), filepath.Join(dir, "other")
	self := proc.Local().Self()
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	if s := r.until(func(s *Snapshot) bool { return true }); s.Roots[0].Kind != "missing" || s.Roots[0].Watch != "none" {
		t.Fatalf("got %+v", s.Roots)
	}
	lock := filepath.Join(root, "index", "a", "cache.lock")
	putLock(t, lock, newLock(self, time.Now()))
	r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Live) })

	// Another directory comes in its place, with another entry, and what happens in it then is seen.
	putLease(t, filepath.Join(other, "leases"), newLease(self, "b", time.Now()))
	if err := os.Rename(root, filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, root); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "leases", "b.lease.json")
	r.until(func(s *Snapshot) bool {
		return is(s, path, verdict.Live) && find(s, lock) == nil && s.Roots[0].Kind == "agentmux"
	})
	remove(t, path)
	r.until(func(s *Snapshot) bool { return is(s, path, verdict.Free) })
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	r.until(func(s *Snapshot) bool { return s.Roots[0].Kind == "missing" && len(s.Entries) == 0 })
}

// Nothing tells of a link that leads elsewhere, and both places look alike.
func TestALinkThatLeadsElsewhereIsToldOfTheRoot(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	root, next := filepath.Join(dir, "root"), filepath.Join(dir, "next")
	self := proc.Local().Self()
	for _, name := range []string{"one", "two"} {
		putLease(t, filepath.Join(dir, name, "leases"), newLease(self, name, time.Now()))
	}
	for link, to := range map[string]string{root: "one", next: "two"} {
		if err := os.Symlink(filepath.Join(dir, to), link); err != nil {
			t.Skip(err)
		}
	}
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	has := func(name string) func(*Snapshot) bool {
		return func(s *Snapshot) bool { return len(s.Entries) == 1 && s.Entries[0].ID == name }
	}
	first := r.until(has("one"))
	if err := os.Rename(next, root); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, c := range Diff(first, r.until(has("two"))) {
		told = append(told, c.Event+" "+c.Sentence)
	}
	if len(told) != 3 || !strings.HasPrefix(told[0], "watch Another directory is in this root's place now (agentmux)") {
		t.Errorf("%q", told)
	}
}

func TestDirectoriesOfLeasesMayComeLater(t *testing.T) {
	defer goleak.VerifyNone(t)
	root := t.TempDir()
	self := proc.Local().Self()
	r := start(t, &Watcher{Roots: []Root{{Path: root}}})
	defer r.stop()
	r.until(func(s *Snapshot) bool { return s.Roots[0].Kind == "plain" })
	// One level at a time, each long enough to be seen by itself.
	dir := root
	for _, name := range []string{"shared", "agents", "registry", "leases"} {
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.until(func(s *Snapshot) bool { return s.Roots[0].Kind == "agentmux" })
	putLease(t, dir, newLease(self, "a", time.Now()))
	r.until(func(s *Snapshot) bool { return is(s, filepath.Join(dir, "a.lease.json"), verdict.Live) })
	lock := filepath.Join(root, "index", "k", "sub", "x.lock")
	putLock(t, lock, newLock(self, time.Now()))
	r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Live) && s.Roots[0].Kind == "agentmux+aft" })
}

func TestARootThatIsAFileIsWatched(t *testing.T) {
	defer goleak.VerifyNone(t)
	lock := filepath.Join(t.TempDir(), "one.lock")
	l := newLock(proc.Local().Self(), time.Now())
	putLock(t, lock, l)
	r := start(t, &Watcher{Roots: []Root{{Path: lock}}})
	defer r.stop()
	r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Live) })
	first := r.latest()
	l.WriterEpoch = "writer-2"
	putLock(t, lock+".new", l)
	if err := os.Rename(lock+".new", lock); err != nil {
		t.Fatal(err)
	}
	second := r.until(func(s *Snapshot) bool {
		e := find(s, lock)
		return e != nil && e.Subject.Holder().WriterEpoch == "writer-2"
	})
	for _, c := range Diff(first, second) { // a root that is a file is another one with each beat that renames
		if c.Event == Watch {
			t.Errorf("told: %s", c.Sentence)
		}
	}
	remove(t, lock)
	r.until(func(s *Snapshot) bool { return s.Roots[0].Kind == "missing" })
	putLock(t, lock, l)
	r.until(func(s *Snapshot) bool { return is(s, lock, verdict.Live) })
}
