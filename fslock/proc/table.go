package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Table answers questions about the processes of one machine as they are at the moment of the call. It is safe for
// concurrent use.
type Table struct {
	src  Source
	self *Self // nil: asked anew
	memo *memo // nil: every question is asked anew
}

// memo is what one look over many records has learnt. Each question is asked once, outside the lock, so that
// workers that judge other pids do not wait for it.
type memo struct {
	self   func() Self
	nested func() nestedView
	files  func() filesView
	locks  func() ([]FileLock, error)
	flocks func() map[uint64]bool // by inode
	boot   func() time.Time

	mu     sync.Mutex
	looks  map[int]func() sight
	frozen map[int]bool
	judged map[question]judgement
}

type nestedView struct {
	byInner map[int][]int
	missing string
}

type filesView struct {
	files    []OpenFile
	denied   []int
	complete bool
}

// local holds the identity of this process, which costs more to read than a refused claim may take.
var local = sync.OnceValue(func() *Table { return NewTable(localSource()) }) //nolint:gochecknoglobals // own identity

// Local returns the table of this machine. The identity of this process is read at the first call and kept; the
// call itself costs nothing after that.
func Local() *Table { return local() }

// NewTable returns a table over a source; it serves package proctest.
func NewTable(src Source) *Table { return &Table{src: src} }

// Batch returns a table that gives the same answers and remembers them: each pid is looked at once, and all of
// /proc is searched at most once. It serves one look over many records and goes stale after it.
func (t *Table) Batch() *Table {
	src := t.src
	locks := sync.OnceValues(src.Locks)
	return &Table{src: src, memo: &memo{
		self: sync.OnceValue(src.Self),
		nested: sync.OnceValue(func() nestedView {
			byInner, missing := src.Nested()
			return nestedView{byInner, missing}
		}),
		files: sync.OnceValue(func() filesView {
			files, denied, complete := src.OpenFiles()
			return filesView{files, denied, complete}
		}),
		locks: locks,
		flocks: sync.OnceValue(func() map[uint64]bool {
			all, _ := locks()
			inodes := make(map[uint64]bool, len(all))
			for _, l := range all {
				inodes[l.Ino] = true
			}
			return inodes
		}),
		boot:   sync.OnceValue(src.BootTime),
		looks:  make(map[int]func() sight),
		frozen: make(map[int]bool),
		judged: make(map[question]judgement),
	}}
}

// Self returns who this process is. Host and StartUnix are those of this moment: a host can be renamed, and a
// clock step moves AgentMux's start time.
func (t *Table) Self() Self {
	switch {
	case t.self != nil:
		return *t.self
	case t.memo != nil:
		return t.memo.self()
	default:
		return t.src.Self()
	}
}

// AsNow returns a table that gives the same answers, but for Self, which it has asked once: it serves one look at one
// record.
func (t *Table) AsNow() *Table {
	self := t.Self()
	return &Table{src: t.src, self: &self, memo: t.memo}
}

// BootTime returns when this machine booted by its present wall clock, in whole seconds; zero when unknown.
func (t *Table) BootTime() time.Time {
	if t.memo != nil {
		return t.memo.boot()
	}
	return t.src.BootTime()
}

// IsSelf says whether the record's process is this very one: same pid, this machine, same start, and the same pid
// namespace and pidfd where they are recorded. It is false when neither a start nor a boot id is recorded. With a
// boot id but no start the pid must do, unless the last heartbeat is older than this process.
func (t *Table) IsSelf(id Identity) bool {
	self := t.Self()
	if self.PID <= 0 || int64(id.PID) != int64(self.PID) {
		return false
	}
	own := self.BootID != "" && strings.TrimSpace(id.BootID) == self.BootID
	if !own && (strings.TrimSpace(id.BootID) != "" || !sameHost(id.Host, self.Host)) {
		return false
	}
	if own {
		for _, pair := range [][2]uint64{
			{id.PIDNS, self.PIDNS}, {id.TimeNS, self.TimeNS}, {id.PidfdIno, self.PidfdIno},
		} {
			if pair[0] != 0 && pair[1] != 0 && pair[0] != pair[1] {
				return false
			}
		}
	}
	switch {
	case ticksCount(id, self, own) && self.StartTicks != 0:
		return *id.StartTicks == self.StartTicks
	case id.StartUnix != 0:
		return within(id.StartUnix, self.StartUnix, startTolerance)
	default:
		started := time.Unix(int64(min(self.StartUnix, math.MaxInt64)), 0)
		return own && (id.LastBeat.IsZero() || !id.LastBeat.Before(started))
	}
}

// Describe returns what a person wants to see of a process; what of that cannot be seen is left zero. The error wraps
// ErrNoProcess when there is none, and fs.ErrPermission when it is hidden; any other means that it cannot be looked at.
func (t *Table) Describe(pid int) (Details, error) {
	if pid <= 0 || pid > maxPID {
		return Details{}, fmt.Errorf("describe pid %d: %w", pid, ErrNoProcess)
	}
	d, err := t.src.Describe(pid)
	if err != nil {
		switch {
		case !t.src.Exists(pid):
			err = ErrNoProcess
		case errors.Is(err, ErrNoProcess):
			err = fs.ErrPermission
		}
		return Details{}, fmt.Errorf("describe pid %d: %w", pid, err)
	}
	return d, nil
}

// Flocked reports whether the kernel's list shows an flock on a file of that inode number, held or waited for. It
// costs one read of that list where FlockHolders looks at every descriptor of every process. Inside a pid namespace the
// list leaves out a lock whose taker has died.
func (t *Table) Flocked(ino uint64) bool {
	if t.memo != nil {
		return t.memo.flocks()[ino]
	}
	locks, _ := t.src.Locks()
	return slices.ContainsFunc(locks, func(l FileLock) bool { return l.Ino == ino })
}

// FlockHolders returns who holds an flock on the file of that device and inode, then who waits for one, each in the
// order of pids. A child that inherited the descriptor is a holder although another process took the lock. complete
// is false when not everybody could be seen: no /proc, descriptors of other users, a pid namespace of our own. Inside
// one the kernel does not tell who waits for a lock whose taker has died. A descriptor in flight between two processes,
// or one of a thread with its own table, is never seen.
func (t *Table) FlockHolders(dev, ino uint64) (holders []FlockHolder, complete bool) {
	locks, err := t.fileLocks()
	view := t.openFiles()
	complete = view.complete && len(view.denied) == 0 && err == nil

	holds, waits, opens := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, f := range view.files {
		if f.Ino == ino && t.src.SameFile(f, dev, ino) {
			opens[f.PID] = true
			if f.Flock {
				holds[f.PID] = true
			}
		}
	}
	for _, l := range locks {
		// A file system that shows one device in stat and another in the kernel's list (btrfs, overlay) is
		// recognised by the descriptor.
		if l.Ino != ino || l.Dev != dev && !opens[l.PID] {
			continue
		}
		switch {
		case l.Waiting:
			waits[l.PID] = true
		case slices.Contains(view.denied, l.PID):
			holds[l.PID] = true
		case len(holds) == 0:
			complete = false // taken by somebody who is gone, held by somebody who is not seen
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(holds)) {
		if s := t.look(pid); s.exists {
			holders = append(holders, FlockHolder{Process: s.Process, Stopped: t.stopped(s)})
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(waits)) {
		if s := t.look(pid); s.exists {
			holders = append(holders, FlockHolder{Process: s.Process, Stopped: t.stopped(s), Waiting: true})
		}
	}
	return holders, complete
}

// Writers returns the processes that have the file of that device and inode open for writing, in order. complete is
// false when not every process could be looked into. A writable mapping whose descriptor was closed is not seen.
func (t *Table) Writers(dev, ino uint64) (pids []int, complete bool) {
	view := t.openFiles()
	for _, f := range view.files {
		if f.Write && f.Ino == ino && !slices.Contains(pids, f.PID) && t.src.SameFile(f, dev, ino) {
			pids = append(pids, f.PID)
		}
	}
	slices.Sort(pids)
	return pids, view.complete && len(view.denied) == 0
}

func (t *Table) fileLocks() ([]FileLock, error) {
	if t.memo != nil {
		return t.memo.locks()
	}
	return t.src.Locks()
}

func (t *Table) openFiles() filesView {
	if t.memo != nil {
		return t.memo.files()
	}
	files, denied, complete := t.src.OpenFiles()
	return filesView{files, denied, complete}
}

func (t *Table) nested() nestedView {
	if t.memo != nil {
		return t.memo.nested()
	}
	byInner, missing := t.src.Nested()
	return nestedView{byInner, missing}
}

func (t *Table) stopped(s sight) bool {
	if !s.seen || s.Condition != Running {
		return s.seen
	}
	return t.frozen(s.PID)
}

func (t *Table) frozen(pid int) bool {
	if t.memo == nil {
		return t.src.Frozen(pid)
	}
	t.memo.mu.Lock()
	frozen, known := t.memo.frozen[pid]
	t.memo.mu.Unlock()
	if !known {
		frozen = t.src.Frozen(pid)
		t.memo.mu.Lock()
		t.memo.frozen[pid] = frozen
		t.memo.mu.Unlock()
	}
	return frozen
}

// sight is what is known of a pid: whether somebody has it, and the look at it if that was possible.
type sight struct {
	Look
	exists bool
	seen   bool
}

func (t *Table) look(pid int) sight {
	if t.memo == nil {
		return lookAt(t.src, pid)
	}
	t.memo.mu.Lock()
	look := t.memo.looks[pid]
	if look == nil {
		look = sync.OnceValue(func() sight { return lookAt(t.src, pid) })
		t.memo.looks[pid] = look
	}
	t.memo.mu.Unlock()
	return look()
}

// lookAt looks twice at what exists and is not seen: a process that took the pid between the two questions is seen
// the second time, one that is hidden is not.
func lookAt(src Source, pid int) sight {
	for range 2 {
		if l, err := src.Look(pid); err == nil {
			return sight{Look: l, exists: true, seen: true}
		}
		if !src.Exists(pid) {
			return sight{}
		}
	}
	return sight{Look: Look{Process: Process{PID: pid}}, exists: true}
}
