//go:build unix

package watch

import (
	"fmt"
	"os"
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

// section makes the flock file of a lease and returns which file it is.
func section(t *testing.T, dir, id string) proctest.File {
	t.Helper()
	path := filepath.Join(dir, id+".lock")
	put(t, path, nil)
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	dev, ino, ok := record.Inode(st)
	if !ok {
		t.Fatal("a file has no inode")
	}
	return proctest.File{Dev: dev, Ino: ino}
}

func TestWhoWaitsForACriticalSectionIsTold(t *testing.T) {
	leases := filepath.Join(t.TempDir(), "leases")
	world := machine()
	putLease(t, leases, newLease(holderOn(world), "a", time.Now()))
	putLease(t, leases, newLease(holderOn(world), "b", time.Now()))
	a, _ := section(t, leases, "a"), section(t, leases, "b")
	holder := proctest.Proc{PID: 7, Start: 9, Name: "holder", Holds: []proctest.File{a}}
	hidden := holder
	hidden.Hidden = true
	waiters := []proctest.Proc{
		{PID: 12, Start: 9, Name: "stopped", Condition: proc.Stopped, Waits: []proctest.File{a}},
		{PID: 9, Start: 9, Name: "agentmux", Waits: []proctest.File{a}},
	}
	both := []Waiter{{PID: 9, Name: "agentmux", How: ByFlock}, {PID: 12, Name: "stopped", How: ByFlock, Stopped: true}}
	for _, c := range []struct {
		name   string
		procs  []proctest.Proc
		hides  bool
		want   []Waiter
		hidden bool
	}{
		{"nobody is there", nil, false, nil, false},
		{"the holder is seen", append(waiters, holder), false, both, false},
		{"nobody waits", []proctest.Proc{holder}, false, nil, false},
		{"the holder is hidden", append(waiters, hidden), true, both, true},
		{"the holder is hidden and nobody waits", []proctest.Proc{hidden}, true, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			world := machine()
			world.Change(func(m *proctest.Machine) { m.Procs, m.HidesOthers = append(m.Procs, c.procs...), c.hides })
			w := &Watcher{Roots: []Root{{Path: leases}}, Table: world.Table()}
			s, err := w.Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e := find(s, filepath.Join(leases, "a.lease.json"))
			if !slices.Equal(e.Waiters, c.want) || e.Hidden != c.hidden {
				t.Errorf("got %+v, hidden: %v", e.Waiters, e.Hidden)
			}
			if e = find(s, filepath.Join(leases, "b.lease.json")); e.Waiters != nil || e.Hidden {
				t.Errorf("of the other lease: %+v, hidden: %v", e.Waiters, e.Hidden)
			}
		})
	}
}

// passing is a machine on which a process lets its flock go between the look at the kernel's list and that at the
// descriptors.
type passing struct{ proc.Source }

func (passing) OpenFiles() ([]proc.OpenFile, []int, bool)   { return nil, nil, true }
func (passing) Self() proc.Self                             { return proc.Self{Host: "vm"} }
func (passing) BootTime() time.Time                         { return time.Time{} }
func (passing) SameFile(proc.OpenFile, uint64, uint64) bool { return false }
func (passing) Exists(int) bool                             { return false }
func (passing) Look(int) (proc.Look, error)                 { return proc.Look{}, proc.ErrNoProcess }

type passingLocks struct {
	passing

	locks func() []proc.FileLock
}

func (p passingLocks) Locks() ([]proc.FileLock, error) { return p.locks(), nil }

func TestAnFlockThatIsLetGoWhileOneLooksHidesNobody(t *testing.T) {
	leases := filepath.Join(t.TempDir(), "leases")
	a := section(t, leases, "a")
	for _, goes := range []bool{true, false} {
		entries := []*Entry{{Kind: Lease, Subject: &verdict.LeaseFacts{ID: "a", Flock: record.Stamp{Dev: a.Dev, Ino: a.Ino}}}}
		asked := 0
		w := &Watcher{Table: proc.NewTable(passingLocks{locks: func() []proc.FileLock {
			if asked++; asked > 1 && goes {
				return nil
			}
			return []proc.FileLock{{PID: 5, Dev: a.Dev, Ino: a.Ino}}
		}})}
		w.sections(entries)
		if entries[0].Hidden == goes {
			t.Errorf("it goes: %v, and somebody is hidden: %v", goes, entries[0].Hidden)
		}
	}
}

func created(path string) fsnotify.Event { return fsnotify.Event{Name: path, Op: fsnotify.Create} }

// temp is the path of a temp that a process made for a lock.
func temp(lock string, pid, n int) string {
	dir, name := filepath.Split(lock)
	return fmt.Sprintf("%s.%s.tmp.%d.1.%d", dir, name, pid, n)
}

func TestWhoPollsForALockIsToldByTheTemps(t *testing.T) {
	root := t.TempDir()
	world := machine()
	world.Change(func(m *proctest.Machine) {
		m.Procs = append(m.Procs,
			proctest.Proc{PID: 300, Start: 5, Name: "node"},
			proctest.Proc{PID: 200, Start: 5, Name: "node", Condition: proc.Stopped})
	})
	who := func(pid int, start uint64) proc.Self {
		self := holderOn(world)
		self.PID, self.StartTicks = pid, start
		return self
	}
	now := time.Now()
	elsewhere := who(400, 5)
	elsewhere.Host, elsewhere.BootID = "far", "boot-far"
	held, free, idle := filepath.Join(root, "held.lock"), filepath.Join(root, "free.lock"), filepath.Join(root, "idle.lock")
	putLock(t, held, newLock(who(100, 777), now))
	putLock(t, idle, newLock(who(100, 777), now))
	for _, made := range []struct {
		path string
		who  proc.Self
	}{
		{temp(held, 300, 0), who(300, 5)},
		{temp(held, 300, 1), who(300, 5)}, // another thread's
		{temp(held, 200, 0), who(200, 5)},
		{temp(held, 100, 0), who(100, 777)}, // the holder's beat
		{temp(held, 999, 0), who(999, 5)},   // left behind
		{temp(held, 400, 0), elsewhere},
		{temp(free, 100, 0), who(100, 777)},
	} {
		putLock(t, made.path, newLock(made.who, now))
	}
	w := &Watcher{Roots: []Root{{Path: root}}, Table: world.Table()}
	s, err := w.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]Waiter{
		held: {{PID: 200, Name: "node", How: ByPoll, Stopped: true}, {PID: 300, Name: "node", How: ByPoll}},
		free: {{PID: 100, Name: "holder", How: ByPoll}},
		idle: nil,
	} {
		e := find(s, path)
		if e == nil {
			t.Fatalf("no %s in\n%s", path, lines(s))
		}
		if !slices.Equal(e.Waiters, want) || e.Hidden {
			t.Errorf("%s: got %+v", path, e.Waiters)
		}
	}
}

func TestAWaiterThatComesAndGoesIsShownAndIsNoLine(t *testing.T) {
	var file proctest.File
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.world.Change(func(m *proctest.Machine) {
			m.Procs = append(m.Procs,
				proctest.Proc{PID: 7, Start: 9, Name: "inside", Holds: []proctest.File{file}},
				proctest.Proc{PID: 9, Start: 9, Name: "agentmux", Waits: []proctest.File{file}})
		})
		s := b.after(scanGap + latency)
		if got, want := find(s, b.lease("a")).Waiters, []Waiter{{PID: 9, Name: "agentmux", How: ByFlock}}; !slices.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		b.world.Kill(9)
		last := b.after(scanGap + latency)
		if got := find(last, b.lease("a")).Waiters; got != nil {
			t.Errorf("still there is %+v", got)
		}
		if len(find(s, b.lease("a")).Waiters) != 1 {
			t.Error("an older snapshot was changed")
		}
		if n := b.count(); n != 3 {
			t.Errorf("%d snapshots", n)
		}
		for i := range b.snapshots[1:] {
			if changes := Diff(b.snapshots[i], b.snapshots[i+1]); len(changes) > 0 {
				t.Errorf("it is told: %+v", changes)
			}
		}
	}, func(_ *Watcher, b *bubble) {
		put(t, filepath.Join(b.leases, "a.epoch"), []byte("7\n"))
		file = section(t, b.leases, "a")
	})
}

func TestWhoWaitsForLeasesIsAskedEveryFewSeconds(t *testing.T) {
	var file proctest.File
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		waits := func(pid int) {
			b.world.Change(func(m *proctest.Machine) {
				m.Procs = append(m.Procs, proctest.Proc{PID: pid, Start: 9, Waits: []proctest.File{file}})
			})
		}
		b.world.Change(func(m *proctest.Machine) {
			m.Procs = append(m.Procs, proctest.Proc{PID: 7, Start: 9, Holds: []proctest.File{file}})
		})
		shown := func(want int) {
			t.Helper()
			if s := b.after(flockGap); len(find(s, b.lease("0")).Waiters) != want {
				t.Errorf("got %+v, want %d", find(s, b.lease("0")).Waiters, want)
			}
		}
		shown(0)
		waits(9)
		shown(1)
		waits(10)
		shown(2)
		b.world.Kill(9)
		shown(1)
		b.world.Kill(10)
		b.world.Kill(7)
		shown(0)
	}, func(_ *Watcher, b *bubble) {
		for i := range 300 {
			put(t, filepath.Join(b.leases, fmt.Sprintf("%d.epoch", i)), []byte("7\n"))
		}
		file = section(t, b.leases, "0")
	})
}

func TestAnOriginalThatPollsIsToldByItsEvents(t *testing.T) {
	var lock string
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		b.world.Change(func(m *proctest.Machine) {
			m.Procs = append(m.Procs, proctest.Proc{PID: 300, Start: 5, Name: "node"})
		})
		poller := b.who
		poller.PID, poller.StartTicks = 300, 5
		far := poller
		far.Host, far.BootID = "far", "boot-far"
		n := 0
		poll := func(pid int, l record.Lock) {
			n++
			path := temp(lock, pid, n)
			putLock(t, path, l)
			b.source.wrote(path)
			synctest.Wait()
			remove(t, path)
		}
		began := b.count()
		for i := range 20 {
			poll(300, newLock(poller, time.Now()))
			b.after(20 * time.Millisecond)
			poll(b.who.PID, newLock(b.who, time.Now()))
			b.after(20 * time.Millisecond)
			poll(301, newLock(far, time.Now()))
			s := b.after(60 * time.Millisecond)
			got, want := find(s, lock).Waiters, []Waiter{{PID: 300, Name: "node", How: ByPoll}}
			if i > 2 && !slices.Equal(got, want) || i == 0 && got != nil {
				t.Fatalf("after %d polls: %+v", i+1, got)
			}
		}
		if got := find(b.after(pollsRecent+2*latency), lock).Waiters; got != nil {
			t.Errorf("long after the last poll: %+v", got)
		}
		if n := b.count() - began; n != 2 {
			t.Errorf("%d snapshots of one who came and went", n)
		}
		for i := range b.snapshots[1:] {
			if changes := Diff(b.snapshots[i], b.snapshots[i+1]); len(changes) > 0 {
				t.Errorf("it is told: %+v", changes)
			}
		}
		// One temp is none of a waiter, however long it is.
		poll(300, newLock(poller, time.Now()))
		if got := find(b.after(latency), lock).Waiters; got != nil {
			t.Errorf("after one temp: %+v", got)
		}
	}, func(_ *Watcher, b *bubble) {
		lock = filepath.Join(b.root, "index", "k", "cache.lock")
		l := newLock(b.who, time.Now())
		l.HeartbeatAtMS += 60_000 // current for the whole test
		putLock(t, lock, l)
	})
}

func TestAStormOfTempsIsNotKept(t *testing.T) {
	e := &engine{w: &Watcher{Table: machine().Table()}}
	dir := t.TempDir()
	for pid := range 2 * maxPolls {
		e.hearPoll(created(temp(filepath.Join(dir, "a.lock"), pid+1, 0)), time.Now())
	}
	if len(e.polls) != maxPolls {
		t.Errorf("%d are kept", len(e.polls))
	}
	if e.countPolls(time.Now().Add(pollsRecent)); len(e.polls) != 0 || len(e.pollers) != 0 {
		t.Errorf("%d are kept for ever", len(e.polls))
	}
}

func TestARealProcessThatWaitsIsSeen(t *testing.T) {
	root := t.TempDir()
	lease, lock := filepath.Join(root, "leases"), filepath.Join(root, "leases", "a.lock")
	putLease(t, lease, newLease(proc.Local().Self(), "a", time.Now()))
	section(t, lease, "a")
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := waitForFlock(f); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(root, "index", "k", "cache.lock")
	putLock(t, held, newLock(proc.Local().Self(), time.Now()))

	flocks, polls := startWaiter(t, "flock", lock), startWaiter(t, "acquire", held)
	w := &Watcher{Roots: []Root{{Path: root}}}
	r := start(t, w)
	defer r.stop()
	is := func(s *Snapshot, path string, pid int, how string) bool {
		e := find(s, path)
		return e != nil && len(e.Waiters) == 1 && e.Waiters[0].PID == pid && e.Waiters[0].How == how && e.Waiters[0].Name != ""
	}
	s := r.until(func(s *Snapshot) bool {
		return (noProcLocks() || is(s, filepath.Join(lease, "a.lease.json"), flocks, ByFlock)) && is(s, held, polls, ByPoll)
	})
	if find(s, filepath.Join(lease, "a.lease.json")).Hidden {
		t.Error("its holder is this process, which is said to be hidden")
	}
}

// noProcLocks reports whether this system does not tell of its flocks.
func noProcLocks() bool {
	_, err := os.Stat("/proc/locks")
	return err != nil
}

// startWaiter starts a process that waits until the test ends, and returns its pid.
func startWaiter(t *testing.T, kind, path string) int {
	t.Helper()
	cmd := child(t, testBinary(t), kind, path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
