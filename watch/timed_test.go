package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/verdict"
)

// told is a source that tells what a test says.
type told struct {
	events chan fsnotify.Event
	errors chan error

	mu      sync.Mutex
	dirs    map[string]bool
	refuses error
	closed  bool
}

func newTold() *told {
	return &told{events: make(chan fsnotify.Event, 1024), errors: make(chan error), dirs: make(map[string]bool)}
}

func (s *told) Add(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses != nil {
		return &os.SyscallError{Syscall: "inotify_add_watch", Err: s.refuses}
	}
	s.dirs[dir] = true
	return nil
}

func (s *told) Remove(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dirs, dir)
	return nil
}

func (s *told) Events() <-chan fsnotify.Event { return s.events }
func (s *told) Errors() <-chan error          { return s.errors }

func (s *told) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *told) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = err
}

func (s *told) watched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var dirs []string
	for dir := range s.dirs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// wrote tells that a file was written anew.
func (s *told) wrote(path string) { s.events <- fsnotify.Event{Name: path, Op: fsnotify.Create} }

// machine is a made-up one on which process 100 runs.
func machine() *proctest.World {
	return proctest.NewWorld(proctest.Machine{
		Host: "vm", BootID: "boot-1", BootAt: time.Now().Add(-time.Hour), Initial: true, PIDNS: 1, TimeNS: 2, PID: 1,
		Procs: []proctest.Proc{{PID: 1, Start: 1}, {PID: 100, Start: 777, Name: "holder"}},
	})
}

// holderOn is process 100 of that machine as it records itself.
func holderOn(w *proctest.World) proc.Self {
	self := w.Table().Self()
	self.PID, self.StartTicks = 100, 777
	self.StartUnix = uint64(time.Now().Add(-time.Hour).Unix()) + 7
	return self
}

// bubble is a Run in fake time on a made-up machine.
type bubble struct {
	*running
	world  *proctest.World
	source *told
	who    proc.Self
	root   string
	leases string
	began  time.Time
}

func inBubble(t *testing.T, test func(t *testing.T, b *bubble), prepare ...func(*Watcher, *bubble)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		world := machine()
		b := &bubble{
			world: world, source: newTold(), who: holderOn(world), root: root,
			leases: filepath.Join(root, "leases"), began: time.Now(),
		}
		if err := os.Mkdir(b.leases, 0o755); err != nil {
			t.Fatal(err)
		}
		w := &Watcher{
			Roots: []Root{{Path: root}}, Table: world.Table(),
			open:  func() (source, error) { return b.source, nil },
			fsOf:  func(string) (string, bool) { return "ext4", true },
			spent: func() time.Duration { return 0 },
		}
		for _, p := range prepare {
			p(w, b)
		}
		b.running = start(t, w)
		synctest.Wait()
		test(t, b)
		b.stop()
		if !b.source.closed && w.Roots != nil && b.latest().Roots[0].Watch == eventMode {
			t.Error("the source was left open")
		}
	})
}

// after lets time pass and returns the snapshot that is there then.
func (b *bubble) after(d time.Duration) *Snapshot {
	time.Sleep(d)
	synctest.Wait()
	return b.latest()
}

func (b *bubble) lease(id string) string { return filepath.Join(b.leases, id+".lease.json") }

func TestFirstSnapshotComesAtOnceAndNothingWithoutChange(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		if b.count() != 1 || len(b.latest().Entries) != 1 || !b.latest().Time.Equal(b.began) {
			t.Fatalf("got %d snapshots", b.count())
		}
		if got := b.source.watched(); !slices.Equal(got, []string{b.root, b.leases}) {
			t.Errorf("watched are %q", got)
		}
		if b.after(time.Hour); b.count() != 1 {
			t.Errorf("%d snapshots of a free lease in an hour", b.count())
		}
	}, func(_ *Watcher, b *bubble) { put(t, filepath.Join(b.leases, "a.epoch"), []byte("7\n")) })
}

func TestWithoutRootsThereIsOneEmptySnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		if s := b.after(time.Minute); b.count() != 1 || len(s.Roots)+len(s.Entries)+len(s.Errors) != 0 {
			t.Errorf("%d snapshots, the last %+v", b.count(), s)
		}
	}, func(w *Watcher, _ *bubble) { w.Roots = nil })
}

func TestARootThatIsAFileMayHaveAnyName(t *testing.T) {
	var lock string
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.after(time.Second)
		l := newLock(b.who, time.Now())
		l.WriterEpoch = "writer-2"
		putLock(t, lock, l)
		b.source.wrote(lock)
		s := b.after(2 * latency)
		if e := find(s, lock); e == nil || e.Subject.Holder().WriterEpoch != "writer-2" {
			t.Errorf("got\n%s", lines(s))
		}
		if s = b.after(2 * scanGap); s.Roots[1].Watch != eventMode {
			t.Errorf("got %+v", s.Roots)
		}
	}, func(w *Watcher, b *bubble) {
		lock = filepath.Join(b.root, "odd.pid")
		putLock(t, lock, newLock(b.who, time.Now()))
		w.Roots = append(w.Roots, Root{Path: lock})
	})
}

func TestASlowReaderIsNotAskedToWaitLonger(t *testing.T) {
	// Run waits for emit; what that takes is no work of looking, which would have to be rested from.
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := &Watcher{
			Roots: []Root{{Path: dir}}, Table: machine().Table(),
			open: func() (source, error) { return nil, errors.New("none") },
			fsOf: func(string) (string, bool) { return "ext4", true },
		}
		ctx, cancel := context.WithCancel(t.Context())
		var times []time.Time
		ended := make(chan error)
		go func() {
			ended <- w.Run(ctx, func(*Snapshot) {
				times = append(times, time.Now())
				time.Sleep(30 * time.Second)
			})
		}()
		time.Sleep(time.Second)
		put(t, filepath.Join(dir, "x.lock"), nil)
		time.Sleep(35 * time.Second)
		cancel()
		if err := <-ended; err != nil || len(times) != 2 {
			t.Errorf("%d snapshots, %v", len(times), err)
		}
	})
}

func TestThresholdsArePassedOnTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		putLease(t, b.leases, newLease(b.who, "a", time.Now()))
		b.source.wrote(b.lease("a"))
		for _, c := range []struct {
			at    time.Duration
			state verdict.State
		}{
			{latency, verdict.Live},
			{verdict.LeaseTTL/2 - time.Millisecond, verdict.Live},
			{verdict.LeaseTTL/2 + latency, verdict.Late},
			{verdict.LeaseTTL - time.Millisecond, verdict.Late},
			{verdict.LeaseTTL + latency, verdict.Expired},
		} {
			s := b.after(time.Until(b.began.Add(c.at)))
			if !is(s, b.lease("a"), c.state) {
				t.Errorf("after %v\n%s", c.at, lines(s))
			}
		}
		if n := b.count(); n != 4 {
			t.Errorf("%d snapshots for four states", n)
		}
	})
}

func TestProcessesAreProbedEverySecond(t *testing.T) {
	const locks = 30
	lock := func(b *bubble, i int) string { return filepath.Join(b.root, "index", "k", fmt.Sprintf("%d.lock", i)) }
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		all := func(state verdict.State) {
			t.Helper()
			s := b.after(1100 * time.Millisecond)
			for i := range locks {
				if !is(s, lock(b, i), state) {
					t.Fatalf("not all are %v\n%s", state, lines(s))
				}
			}
			for i := range 10 {
				if !is(s, b.lease(fmt.Sprint(i)), state) {
					t.Fatalf("not all are %v\n%s", state, lines(s))
				}
			}
		}
		condition := func(c proc.Condition) {
			b.world.Change(func(m *proctest.Machine) { m.Procs[1].Condition = c })
		}
		all(verdict.Live)
		condition(proc.Stopped)
		all(verdict.Stopped)
		condition(proc.Running)
		all(verdict.Live)
		b.world.Change(func(m *proctest.Machine) { m.Procs[1].Zombie = true })
		all(verdict.Dead)
		if cause := find(b.latest(), lock(b, 0)).Verdict.Cause; cause != string(proc.Zombie) {
			t.Errorf("dead of %q", cause)
		}
		b.world.Kill(100)
		all(verdict.Dead)
		if cause := find(b.latest(), lock(b, 0)).Verdict.Cause; cause != string(proc.Gone) {
			t.Errorf("reaped: dead of %q", cause)
		}
		if n := b.count(); n != 5 {
			t.Errorf("%d snapshots for four changes", n)
		}
	}, func(_ *Watcher, b *bubble) {
		for i := range locks {
			l := newLock(b.who, time.Now())
			l.HeartbeatAtMS += 60_000 // current for the whole test
			putLock(t, lock(b, i), l)
		}
		for i := range 10 {
			putLease(t, b.leases, newLease(b.who, fmt.Sprint(i), time.Now()))
		}
	})
}

func TestAStampInTheFutureIsToldByWatching(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		s := b.after(verdict.LeaseTTL - time.Second)
		if e := find(s, b.lease("a")); e.Verdict.State == verdict.Expired || !e.Verdict.Flags.Has(verdict.Clock) {
			t.Errorf("at first\n%s", lines(s))
		}
		if s = b.after(2 * time.Second); !is(s, b.lease("a"), verdict.Expired) {
			t.Errorf("after a TTL unchanged\n%s", lines(s))
		}
	}, func(_ *Watcher, b *bubble) { putLease(t, b.leases, newLease(b.who, "a", time.Now().Add(3*time.Hour))) })
}

func TestAtMostAHundredSnapshotsASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		l := newLease(b.who, "a", time.Now())
		for i := range 2000 {
			l.ClaimID = fmt.Sprint(i)
			put(t, b.lease("a"), l.Encode())
			b.source.wrote(b.lease("a"))
			time.Sleep(time.Millisecond)
		}
		s := b.after(300 * time.Millisecond)
		if find(s, b.lease("a")).Subject.Holder().ClaimID != "1999" {
			t.Error("the last change is not shown")
		}
		if n := b.count(); n < 100 || n > 220 {
			t.Errorf("%d snapshots in two seconds of changes", n)
		}
	})
}

func TestWhatLivesForAMomentIsNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		short, temp := filepath.Join(b.root, "index", "short.lock"), filepath.Join(b.root, "index", ".free.lock.tmp.100.1.0")
		free := filepath.Join(b.root, "index", "free.lock")
		l := newLock(b.who, time.Now())
		for range 20 {
			putLock(t, short, l)
			b.source.wrote(short)
			putLock(t, temp, l)
			b.source.wrote(temp)
			time.Sleep(shortLived - 10*time.Millisecond)
			remove(t, short)
			b.source.wrote(short)
			remove(t, temp)
			b.source.wrote(temp)
			time.Sleep(100 * time.Millisecond)
		}
		if s := b.after(time.Second); b.count() != 1 || len(s.Entries) != 0 {
			t.Errorf("%d snapshots, the last\n%s", b.count(), lines(s))
		}
		putLock(t, temp, l)
		b.source.wrote(temp)
		if s := b.after(2 * shortLived); !is(s, free, verdict.Free) || !is(s, temp, verdict.InUse) {
			t.Errorf("a waiter's temp\n%s", lines(s))
		}
		// The waiter gets it: it is free for a moment more.
		time.Sleep(time.Second)
		putLock(t, free, l)
		b.source.wrote(free)
		if s := b.after(2 * settle); !is(s, free, verdict.Free) {
			t.Errorf("at once\n%s", lines(s))
		}
		if s := b.after(2 * shortLived); !is(s, free, verdict.Live) {
			t.Errorf("after a while\n%s", lines(s))
		}
	}, func(_ *Watcher, b *bubble) {
		if err := os.Mkdir(filepath.Join(b.root, "index"), 0o755); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnOverflowIsFollowedByAFullLook(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		time.Sleep(2500 * time.Millisecond) // between two full looks
		putLease(t, b.leases, newLease(b.who, "a", time.Now()))
		b.source.errors <- fsnotify.ErrEventOverflow
		s := b.after(latency)
		if !is(s, b.lease("a"), verdict.Live) || s.Roots[0].Watch != eventMode {
			t.Errorf("got\n%s", lines(s))
		}
	})
}

func TestChangesThatTheKernelDoesNotTellOf(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		time.Sleep(time.Second)
		putLease(t, b.leases, newLease(b.who, "a", time.Now()))
		s := b.after(scanGap + hearsay)
		if !is(s, b.lease("a"), verdict.Live) || s.Roots[0].Watch != pollMode || !strings.Contains(s.Roots[0].Reason, "did not tell") {
			t.Fatalf("got %+v", s.Roots[0])
		}
		putLease(t, b.leases, newLease(b.who, "b", time.Now()))
		if s = b.after(pollGap + latency); !is(s, b.lease("b"), verdict.Live) {
			t.Errorf("it is not polled\n%s", lines(s))
		}
		putLease(t, b.leases, newLease(b.who, "c", time.Now()))
		b.source.wrote(b.lease("c"))
		if s = b.after(2 * latency); !is(s, b.lease("c"), verdict.Live) || s.Roots[0].Watch != eventMode {
			t.Errorf("the kernel tells again: %+v", s.Roots[0])
		}
	})
}

func TestADirectoryThatCouldNotBeWatchedProvesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		// What was made below the root, and what is in it, is found by a full look alone: nobody told of it.
		putLock(t, filepath.Join(b.root, "index", "k", "x.lock"), newLock(b.who, time.Now()))
		s := b.after(scanGap + 2*hearsay)
		if s.Roots[0].Kind != "agentmux+aft" || s.Roots[0].Watch != eventMode {
			t.Errorf("got %+v", s.Roots[0])
		}
	})
}

func TestWhatPolls(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		prepare      func(w *Watcher, b *bubble)
		cure         func(b *bubble) // nil: there is none
	}{
		{"a network file system", "nfs", func(w *Watcher, _ *bubble) {
			w.fsOf = func(string) (string, bool) { return "nfs", false }
		}, nil},
		{"no watcher to be had", instanceLimit, func(w *Watcher, b *bubble) {
			b.source.refuse(syscall.EMFILE)
			w.open = func() (source, error) {
				b.source.mu.Lock()
				defer b.source.mu.Unlock()
				if b.source.refuses != nil {
					return nil, os.NewSyscallError("inotify_init1", b.source.refuses)
				}
				return b.source, nil
			}
		}, func(b *bubble) { b.source.refuse(nil) }},
		{"no more directories", watchLimit, func(_ *Watcher, b *bubble) {
			b.source.refuse(syscall.ENOSPC)
		}, func(b *bubble) { b.source.refuse(nil) }},
		{"another error", "input/output error", func(_ *Watcher, b *bubble) {
			b.source.refuse(syscall.EIO)
		}, func(b *bubble) { b.source.refuse(nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				t.Helper()
				r := b.latest().Roots[0]
				if r.Watch != pollMode || r.Every != 1500*time.Millisecond || !strings.Contains(r.Reason, c.reason) {
					t.Fatalf("watched by %q: %q", r.Watch, r.Reason)
				}
				putLease(t, b.leases, newLease(b.who, "a", time.Now()))
				if s := b.after(pollGap + latency); !is(s, b.lease("a"), verdict.Live) {
					t.Errorf("got\n%s", lines(s))
				}
				if c.cure == nil {
					return
				}
				c.cure(b)
				if r := b.after(scanGap + time.Second).Roots[0]; r.Watch != eventMode || r.Every != 0 || r.Reason != "" {
					t.Errorf("cured, it is watched by %q: %q", r.Watch, r.Reason)
				}
			}, c.prepare)
		})
	}
}

func TestASourceThatEndsIsReplaced(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*told)
	}{
		{"events", func(s *told) { close(s.events) }},
		{"errors", func(s *told) { close(s.errors) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				t.Helper()
				ended := b.source
				b.source = newTold()
				c.end(ended)
				time.Sleep(scanGap + time.Second)
				putLease(t, b.leases, newLease(b.who, "a", time.Now()))
				b.source.wrote(b.lease("a"))
				if s := b.after(latency); !is(s, b.lease("a"), verdict.Live) || s.Roots[0].Watch != eventMode {
					t.Errorf("got\n%s", lines(s))
				}
				if !ended.closed {
					t.Error("what ended was not closed")
				}
			})
		})
	}
}

func TestRootsThatComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		put(t, filepath.Join(b.leases, "a.epoch"), []byte("3\n"))
		b.source.wrote(filepath.Join(b.leases, "a.epoch"))
		b.after(time.Second)
		old := b.root + ".old"
		if err := os.Rename(b.root, old); err != nil {
			t.Fatal(err)
		}
		if err := b.source.Remove(b.root); err != nil { // as the kernel does
			t.Fatal(err)
		}
		b.source.events <- fsnotify.Event{Name: b.root, Op: fsnotify.Rename}
		if s := b.after(latency); s.Roots[0].Kind != "missing" || s.Roots[0].Watch != "none" || len(s.Entries) != 0 {
			t.Fatalf("gone: %+v", s.Roots[0])
		}
		if dirs := b.source.watched(); len(dirs) != 0 {
			t.Errorf("still watched: %q", dirs)
		}
		if err := os.Rename(old, b.root); err != nil {
			t.Fatal(err)
		}
		if s := b.after(tick + latency); s.Roots[0].Kind != "agentmux" || !is(s, b.lease("a"), verdict.Free) {
			t.Fatalf("back: %+v", s.Roots[0])
		}
		// Another directory in its place, of which nobody tells.
		if err := os.Rename(b.root, old); err != nil {
			t.Fatal(err)
		}
		putLease(t, b.leases, newLease(b.who, "b", time.Now()))
		s := b.after(scanGap + time.Second)
		if is(s, b.lease("a"), verdict.Free) || !is(s, b.lease("b"), verdict.Live) || s.Roots[0].Watch != eventMode {
			t.Errorf("replaced: %+v\n%s", s.Roots[0], lines(s))
		}
	})
}

func TestASessionsFirstLockIsSeenAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.after(time.Second)
		session := filepath.Join(b.root, "pi", "backups", "s")
		if !slices.Contains(b.source.watched(), session) {
			t.Fatalf("watched are %q", b.source.watched())
		}
		lock := filepath.Join(session, ".locks", "f.lock")
		putLock(t, lock, newLock(b.who, time.Now()))
		b.source.wrote(filepath.Dir(lock))
		if s := b.after(2 * latency); !is(s, lock, verdict.Live) {
			t.Errorf("got\n%s", lines(s))
		}
		if slices.Contains(b.source.watched(), session) {
			t.Error("it is still watched")
		}
	}, func(_ *Watcher, b *bubble) {
		for _, dir := range []string{"index", "pi/backups/s"} {
			if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	})
}
