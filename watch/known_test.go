package watch

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Another machine's write may leave the times alone that this one is told.
func TestACounterIsTakenOverOnlyWhereNobodyElseWrites(t *testing.T) {
	for _, local := range []bool{true, false} {
		root := t.TempDir()
		leases := filepath.Join(root, "leases")
		putLease(t, leases, newLease(proc.Local().Self(), "a", time.Now()))
		put(t, filepath.Join(leases, "a.epoch"), record.EncodeCounter(7))
		time.Sleep(150 * time.Millisecond)
		w := &Watcher{Roots: []Root{{Path: root}}, fsOf: func(string) (string, bool) { return "x", local }}
		e := w.engine(nil)
		e.source = newTold()
		e.look(t.Context(), 0)
		path := filepath.Join(leases, "a.lease.json")
		e.roots[0].index[key{Lease, path}].Subject.(*verdict.LeaseFacts).Counter.Value = 70 // as nobody wrote it
		changes, _ := e.renewed(t.Context(), e.roots[0], []string{path})
		if len(changes) != 1 {
			t.Fatalf("%d changes", len(changes))
		}
		if got := changes[0].is.Subject.(*verdict.LeaseFacts).Counter.Value; (got == 70) != local {
			t.Errorf("local %v: the counter is %d", local, got)
		}
	}
}

// A lock that is read again keeps its token, though that is unchanged and not read.
func TestATokenThatIsUnchangedStaysWithALockThatIsNot(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "index", "k")
	self := proc.Local().Self()
	a, b := filepath.Join(dir, "a.lock"), filepath.Join(dir, "b.lock")
	for _, path := range []string{a, b, filepath.Join(dir, ".a.lock.reclaim")} {
		putLock(t, path, newLock(self, time.Now()))
	}
	time.Sleep(150 * time.Millisecond)
	w := &Watcher{Roots: []Root{{Path: root}}}
	first := w.lookAt(t.Context(), 0, nil)
	l := newLock(self, time.Now())
	l.WriterEpoch = "writer-2"
	putLock(t, a, l)
	again := w.lookAt(t.Context(), 0, func(k key) *Entry {
		return first.entries[slices.IndexFunc(first.entries, func(e *Entry) bool { return keyOf(e) == k })]
	})
	if !slices.IsSortedFunc(again.entries, inOrder) || len(again.entries) != 3 {
		t.Fatalf("%d entries, or not in their order", len(again.entries))
	}
	e := again.entries[0]
	if e.Path != a || e.Holder().WriterEpoch != "writer-2" || e.Token == nil || e.Subject.(*verdict.LockFacts).Token == nil {
		t.Errorf("got %+v", e)
	}
	if e := again.entries[1]; e.Path != b || e != first.entries[1] {
		t.Errorf("%s was read, too", e.Path)
	}
}

// While other roots are looked at, time turns what was looked at first.
func TestALookIsOfOneMoment(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	lock := filepath.Join(first, "index", "k", "a.lock")
	synctest.Test(t, func(t *testing.T) {
		world := machine()
		who := holderOn(world)
		putLease(t, filepath.Join(first, "leases"), newLease(who, "a", time.Now()))
		putLock(t, lock, newLock(who, time.Now()))
		put(t, filepath.Join(first, "index", "k", ".a.lock.reclaim"), nil)
		w := &Watcher{Roots: []Root{{Path: first}, {Path: second}}, Table: world.Table()}
		w.fsOf = func(path string) (string, bool) {
			if path == second {
				time.Sleep(verdict.LeaseTTL/2 + time.Second)
			}
			return "x", true
		}
		s, err := w.Look(t.Context())
		if err != nil || !is(s, filepath.Join(first, "leases", "a.lease.json"), verdict.Late) {
			t.Errorf("%v\n%s", err, lines(s))
		}
		for _, e := range s.Entries {
			if want := e.Judge(s.Time); e.Verdict.State != want.State || e.Verdict.Claimable != want.Claimable {
				t.Errorf("%s is %v, and %v at the time of the look", e.Path, e.Verdict.State, want.State)
			}
		}
	})
}

func TestLeasesThatHaveGoneAreLeftOut(t *testing.T) {
	w := &Watcher{}
	dir := t.TempDir()
	putLease(t, dir, newLease(proc.Local().Self(), "here", time.Now()))
	var leases []string
	for _, id := range []string{"gone", "here", "past"} {
		leases = append(leases, filepath.Join(dir, id+".lease.json"))
	}
	if got := w.read(t.Context(), paths{leases: leases}, true); len(got) != 1 || got[0].ID != "here" {
		t.Errorf("%d entries", len(got))
	}
}

// Whatever watches the directory was asked for by another path before, perhaps, and goes with that one.
func TestADirectoryThatMovedHasAllItsRootWatchedAnew(t *testing.T) {
	for op, want := range map[fsnotify.Op]bool{fsnotify.Rename: true, fsnotify.Remove: true, fsnotify.Chmod: false} {
		e := (&Watcher{Roots: make([]Root, 1)}).engine(nil)
		e.dirs["/r/index"] = &watched{roots: []int{0}}
		if e.hear(fsnotify.Event{Name: "/r/index", Op: op}, time.Now()); e.roots[0].rewatch != want {
			t.Errorf("%v: %v", op, e.roots[0].rewatch)
		}
	}
}

// What is due at nearly the same time is looked at together: to be woken costs more than the look.
func TestWhatIsDueSoonAfterSomethingElseWaitsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := (&Watcher{Roots: make([]Root, 1)}).engine(nil)
		now := time.Now()
		for i, path := range []string{"a", "b", "c"} {
			e.plan(e.roots[0], &Entry{Path: path, Verdict: verdict.Verdict{Changes: now.Add(time.Duration(i+100) * 10 * time.Millisecond)}})
		}
		time.Sleep(time.Until(e.dueAt()))
		e.pass(t.Context(), time.Now())
		if wait := time.Until(e.dueAt()); len(e.due) != 2 || wait != passGap {
			t.Errorf("%d are left, the next in %v", len(e.due), wait)
		}
		e.pass(t.Context(), time.Now().Add(passGap-1))
		if len(e.due) != 2 {
			t.Errorf("%d are left before the time", len(e.due))
		}
		if e.pass(t.Context(), time.Now().Add(passGap)); len(e.due) != 0 {
			t.Errorf("%d are left", len(e.due))
		}
	})
}

func TestFilesOfAFlowAreLookedAtTogether(t *testing.T) {
	for _, c := range []struct {
		files     int
		from, too time.Duration
	}{{1, 0, 2*settle + emitGap}, {flow, flowRest, flowRest + emitGap}} {
		inBubble(t, func(t *testing.T, b *bubble) {
			t.Helper()
			b.after(time.Second)
			for i := range c.files {
				b.claim(string(rune('a' + i)))
			}
			last := b.lease(string(rune('a' + c.files - 1)))
			b.since(time.Now(), time.Minute, func(s *Snapshot) bool { return find(s, last) != nil })
			b.claim("z")
			took := b.since(time.Now(), time.Minute, func(s *Snapshot) bool { return find(s, b.lease("z")) != nil })
			if took < c.from-settle || took > c.too {
				t.Errorf("after %d files the next took %v", c.files, took)
			}
		})
	}
}

func TestTheNumberOfOneWhoIsGoneIsAskedAboutMoreRarely(t *testing.T) {
	world := machine()
	lock := filepath.Join(t.TempDir(), "a.lock")
	putLock(t, lock, newLock(holderOn(world), time.Now()))
	world.Kill(100)
	e := (&Watcher{Roots: []Root{{Path: lock}}, Table: world.Table()}).engine(nil)
	e.source = newTold()
	e.look(t.Context(), 0)
	world.Change(func(m *proctest.Machine) { m.Procs = append(m.Procs, proctest.Proc{PID: 100, Start: 999}) })
	found := 0
	for range 2 * goneTicks {
		if len(e.restless()) > 0 {
			found++
		}
	}
	if found != 2 {
		t.Errorf("found %d times in %d", found, 2*goneTicks)
	}
}
