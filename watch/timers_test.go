package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/verdict"
)

// costly makes each asking for the processor time of a bubble's watcher tell of so much more.
func costly(each *atomic.Int64) func(*Watcher, *bubble) {
	return func(w *Watcher, _ *bubble) {
		var sum atomic.Int64
		w.spent = func() time.Duration { return time.Duration(sum.Add(each.Load())) }
	}
}

// since is how long after t a snapshot is of which ok is true: looking each millisecond, at most so long.
func (b *bubble) since(t time.Time, most time.Duration, ok func(*Snapshot) bool) time.Duration {
	b.t.Helper()
	for time.Since(t) < most {
		if ok(b.after(time.Millisecond)) {
			return b.latest().Time.Sub(t)
		}
	}
	b.t.Fatalf("not within %v\n%s", most, lines(b.latest()))
	return 0
}

func TestAFileIsLookedAtAMomentAfterItsEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.after(time.Second)
		putLease(t, b.leases, newLease(b.who, "a", time.Now()))
		b.source.wrote(b.lease("a"))
		took := b.since(time.Now(), time.Second, func(s *Snapshot) bool { return is(s, b.lease("a"), verdict.Live) })
		if took != settle {
			t.Errorf("it took %v", took)
		}
	})
}

func TestDirectoriesThatNeverRestAreLookedAtAllTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.after(100 * time.Millisecond)
		index := filepath.Join(b.root, "index")
		lock := filepath.Join(index, "k", "x.lock")
		putLock(t, lock, newLock(b.who, time.Now().Add(-time.Second)))
		old := time.Now().Add(-time.Second)
		if err := os.Chtimes(lock, old, old); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for time.Since(began) < 3*latency && find(b.latest(), lock) == nil {
			b.source.wrote(index)
			b.after(settle - time.Millisecond)
		}
		if took := b.latest().Time.Sub(began); find(b.latest(), lock) == nil || took < latency-settle || took > latency+settle {
			t.Errorf("it took %v\n%s", took, lines(b.latest()))
		}
	})
}

func TestWhatCostsMoreIsPolledLessOften(t *testing.T) {
	var each atomic.Int64
	each.Store(int64(100 * time.Millisecond))
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		every := func() time.Duration { return b.latest().Roots[0].Every }
		if every() != 2*pollGap {
			t.Fatalf("at first every %v", every())
		}
		putLease(t, b.leases, newLease(b.who, "a", time.Now()))
		each.Store(0)
		took := b.since(b.began, time.Minute, func(s *Snapshot) bool { return is(s, b.lease("a"), verdict.Live) })
		if took < 2*pollGap || took > 2*pollGap+2*emitGap {
			t.Errorf("it took %v", took)
		}
		if every() != pollGap {
			t.Errorf("cheap again, it is polled every %v", every())
		}
	}, costly(&each), func(w *Watcher, _ *bubble) { w.fsOf = func(string) (string, bool) { return "nfs", false } })
}

// Between two looks of a kind lies a multiple of what the first one cost.
func TestAfterEveryKindOfLookRunRests(t *testing.T) {
	const each = 10 * time.Millisecond
	for _, c := range []struct {
		name     string
		rest     time.Duration
		prepare  func(b *bubble)
		one, two func(b *bubble) // make a change that a look of that kind finds
		found    func(s *Snapshot, b *bubble) bool
	}{
		{
			name: "files that events name", rest: restFactor * each,
			one: func(b *bubble) { b.claim("a") }, two: func(b *bubble) { b.claim("b") },
			found: func(s *Snapshot, b *bubble) bool { return find(s, b.lease("b")) != nil },
		},
		{
			name: "whole roots", rest: lookFactor * 3 * each,
			one: func(b *bubble) { b.folder("k1") }, two: func(b *bubble) { b.folder("k2") },
			found: func(s *Snapshot, b *bubble) bool { return find(s, b.lockIn("k2")) != nil },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cost atomic.Int64
			inBubble(t, func(t *testing.T, b *bubble) {
				t.Helper()
				b.after(time.Second)
				cost.Store(int64(each))
				n := b.count()
				c.one(b)
				first := b.since(time.Now(), time.Minute, func(*Snapshot) bool { return b.count() > n })
				if first > 2*settle {
					t.Fatalf("the first took %v", first)
				}
				at := b.latest().Time
				c.two(b)
				took := b.since(at, time.Minute, func(s *Snapshot) bool { return c.found(s, b) })
				if took < c.rest || took > c.rest+2*settle {
					t.Errorf("%v from one to the other, want %v", took, c.rest)
				}
			}, costly(&cost))
		})
	}
}

// claim puts a lease and tells of it.
func (b *bubble) claim(id string) {
	b.t.Helper()
	putLease(b.t, b.leases, newLease(b.who, id, time.Now()))
	b.source.wrote(b.lease(id))
}

func (b *bubble) lockIn(folder string) string {
	return filepath.Join(b.root, "index", folder, "x.lock")
}

// folder makes one with a lock that is old enough to be shown, and tells only of the folder.
func (b *bubble) folder(name string) {
	b.t.Helper()
	lock := b.lockIn(name)
	old := time.Now().Add(-time.Second)
	putLock(b.t, lock, newLock(b.who, old))
	if err := os.Chtimes(lock, old, old); err != nil {
		b.t.Fatal(err)
	}
	b.source.wrote(filepath.Join(b.root, "index"))
}

func TestScansThatCostMuchAreRare(t *testing.T) {
	var cost atomic.Int64
	cost.Store(int64(10 * time.Millisecond))
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.after(time.Second) // what is watched only now is looked at once more
		putLease(t, b.leases, newLease(b.who, "a", time.Now().Add(verdict.LeaseTTL)))
		// One asking after the look and one at the end of the scan, besides that of the look itself.
		const rest = scanFactor * 3 * 10 * time.Millisecond
		took := b.since(b.began, time.Minute, func(s *Snapshot) bool { return find(s, b.lease("a")) != nil })
		if took < rest || took > rest+2*emitGap {
			t.Errorf("it took %v, want %v", took, rest)
		}
	}, costly(&cost))
}

func TestProbesThatCostMuchAreRare(t *testing.T) {
	const costs = 200 * time.Millisecond
	var cost atomic.Int64
	cost.Store(int64(costs))
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.after(time.Second) // what is watched only now is looked at once more
		b.world.Change(func(m *proctest.Machine) { m.Procs[1].Zombie = true })
		const rest = tickFactor * costs
		took := b.since(b.began, time.Minute, func(s *Snapshot) bool { return is(s, b.lease("a"), verdict.Dead) })
		if took < rest || took > rest+2*emitGap {
			t.Errorf("it took %v, want %v", took, rest)
		}
	}, func(_ *Watcher, b *bubble) { putLease(t, b.leases, newLease(b.who, "a", time.Now())) }, costly(&cost))
}

func TestWhatIsToldALittleLateWasTold(t *testing.T) {
	for _, late := range []time.Duration{hearsay - 10*time.Millisecond, hearsay + 10*time.Millisecond} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				t.Helper()
				b.after(scanGap - time.Millisecond)
				putLease(t, b.leases, newLease(b.who, "a", time.Now()))
				b.since(time.Now(), time.Second, func(s *Snapshot) bool { return find(s, b.lease("a")) != nil })
				deaf := false
				for began := time.Now(); time.Since(began) < late; {
					deaf = b.after(time.Millisecond).Roots[0].Watch == pollMode || deaf
				}
				b.source.wrote(b.lease("a"))
				b.after(2 * hearsay)
				for _, s := range b.all() {
					deaf = deaf || s.Roots[0].Watch == pollMode
				}
				if want := late > hearsay; deaf != want {
					t.Errorf("taken for deaf: %v", deaf)
				}
			})
		})
	}
}

func TestAVerdictWhoseTimeIsOverIsAskedAgainSoonAndNotAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := (&Watcher{Roots: make([]Root, 1)}).engine(nil)
		r, now := e.roots[0], time.Now()
		e.plan(r, &Entry{Verdict: verdict.Verdict{Changes: now.Add(-time.Hour)}})
		if got := e.dueAt(); !got.Equal(now.Add(overdue)) {
			t.Errorf("it is due in %v", got.Sub(now))
		}
		e.plan(r, &Entry{Path: "unseen", Verdict: verdict.Verdict{Changes: now}, Unseen: now})
		if e.plan(r, &Entry{Path: "never"}); len(e.due) != 1 {
			t.Errorf("%d are due", len(e.due))
		}
	})
}

// The clock that tells how long something took stands still while the machine sleeps: what is due by it would come late
// by all the time that it slept.
func TestWhatIsDueIsReckonedByTheWallClockAlone(t *testing.T) {
	e := (&Watcher{Roots: make([]Root, 1)}).engine(nil)
	now := time.Now()
	for _, en := range []*Entry{
		{Path: "a", Verdict: verdict.Verdict{Changes: now.Add(time.Hour)}},
		{Path: "b", Verdict: verdict.Verdict{Changes: now.Add(-time.Hour)}},
		{Path: "c", Token: &verdict.Token{Clears: now.Add(time.Minute)}},
	} {
		e.plan(e.roots[0], en)
	}
	for _, d := range e.due {
		if d.at != d.at.Round(0) {
			t.Errorf("%v has a reading of the other clock", d.at)
		}
	}
	if n := len(e.due); n != 3 {
		t.Errorf("%d are due", n)
	}
}

// A renewal moves the time at which something is due, and wakes nobody at the time before.
func TestRenewalsKeepOneTimeEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := (&Watcher{Roots: make([]Root, 1)}).engine(nil)
		r, begun := e.roots[0], time.Now()
		var en *Entry
		renew := func() {
			en = &Entry{Path: "a", Verdict: verdict.Verdict{Changes: time.Now().Add(time.Minute)}}
			r.index[keyOf(en)] = en
			e.plan(r, en)
		}
		for range 100 {
			renew()
			time.Sleep(time.Second / 2)
		}
		if got := e.dueAt(); len(e.due) != 1 || len(r.planned) != 1 || got.Sub(begun).Round(time.Second) != time.Minute {
			t.Errorf("%d times, the first in %v", len(e.due), got.Sub(begun))
		}
		// What was due at first is planned anew without a look.
		time.Sleep(time.Until(e.dueAt()))
		e.pass(t.Context(), time.Now())
		if got := time.Until(e.dueAt()).Round(time.Second); len(e.due) != 1 || len(r.planned) != 1 || got != 50*time.Second {
			t.Errorf("%d times, the next in %v", len(e.due), got)
		}
		// One that comes earlier than it was planned is not missed.
		en = &Entry{Path: "a", Verdict: verdict.Verdict{Changes: time.Now().Add(time.Second)}}
		r.index[keyOf(en)] = en
		if e.plan(r, en); time.Until(e.dueAt()) > 2*time.Second {
			t.Errorf("the next in %v", time.Until(e.dueAt()))
		}
		delete(r.index, keyOf(en))
		time.Sleep(time.Minute)
		if e.pass(t.Context(), time.Now()); len(e.due)+len(r.planned) != 0 {
			t.Errorf("of an entry that is gone %d times are left", len(e.due)+len(r.planned))
		}
	})
}

func TestNamesAreAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		name := func(s *Snapshot) string { return find(s, b.lease("a")).Name }
		tell := func(text string) {
			put(t, filepath.Join(b.root, "a.json"), fmt.Appendf(nil, `{"data":{"instance_name":%q}}`, text))
		}
		if name(b.latest()) != "researcher" {
			t.Fatalf("it is called %q", name(b.latest()))
		}
		tell("writer")
		n, began := b.count(), time.Now()
		b.since(began, 3*keepNames, func(s *Snapshot) bool { return name(s) == "writer" })
		if took := time.Since(began); took < keepNames || b.count() != n+1 {
			t.Errorf("it took %v and %d snapshots", took, b.count()-n)
		}
	}, func(_ *Watcher, b *bubble) {
		put(t, filepath.Join(b.root, "a.json"), []byte(`{"data":{"instance_name":"researcher"}}`))
		put(t, filepath.Join(b.leases, "a.epoch"), []byte("3\n"))
	})
}
