// Package proctest makes up machines and their processes, so that what package proc finds can be tested without
// killing, freezing or sandboxing anything.
//
//	table := proctest.Table(proctest.Machine{
//		Host: "vm", BootID: "b1", Initial: true, PIDNS: 1,
//		Procs: []proctest.Proc{{PID: 4242, Start: 777, Name: "sleep"}},
//	})
//
// A machine of which nothing is said knows no host name, no boot id and no namespaces, so that nothing can be
// proven on it.
package proctest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"holdfast/fslock/proc"
)

// TicksPerSecond is the unit of Proc.Start.
const TicksPerSecond = 100

// Machine is a machine as one process on it sees it. Zero values are unknown to that process.
type Machine struct {
	Host        string
	BootID      string
	BootAt      time.Time // wall time of boot; zero: start times in seconds are unknown too
	PIDNS       uint64    // inode of our pid namespace
	Initial     bool      // ours is the initial pid namespace
	TimeNS      uint64    // inode of our time namespace
	PID         int       // which of Procs is this process; 0: none, and Self has no pid
	UID         int
	User        string
	HidesOthers bool // /proc hides processes: those that are Hidden, and perhaps more
	NoProc      bool // there is no /proc: only kill and pidfds answer
	NoPidfs     bool // processes cannot be found by their pidfd
	DeniesFDs   bool // descriptors of other processes than this one cannot be seen
	Procs       []Proc
}

// Proc is one process, or one thread of it.
type Proc struct {
	PID         int    // as seen from here
	NSpid       []int  // its pids from our namespace down to its own; nil: it lives in ours
	PIDNS       uint64 // inode of its own pid namespace; 0: ours if NSpid is nil, else unreadable
	TimeNS      uint64 // inode of its time namespace; 0: ours
	NoNS        bool   // neither of its namespaces can be read
	PidfdIno    uint64 // inode of its pidfd; 0: it is not found by any
	Start       uint64 // clock ticks since boot, as we read them
	NoStart     bool   // its start cannot be read
	Thread      bool   // PID is only a thread of another process
	Parent      int
	Name        string
	Condition   proc.Condition
	Zombie      bool // its main thread has exited
	LiveThreads int  // of a Zombie: how many other threads still run; negative: cannot be seen
	Hidden      bool // not seen in /proc, while kill says that it exists
	Holds       []File
	Waits       []File // it waits for an flock on these
	Writes      []File // it has these open for writing
	Details     proc.Details
}

// File is a file by its device and inode.
type File struct{ Dev, Ino uint64 }

// Table returns a table over a machine that does not change.
func Table(m Machine) *proc.Table { return NewWorld(m).Table() }

// World is a machine that changes while it is looked at. It is safe for concurrent use.
type World struct {
	mu sync.Mutex
	m  Machine
}

// NewWorld returns a world that starts as m.
func NewWorld(m Machine) *World {
	m.Procs = slices.Clone(m.Procs)
	return &World{m: m}
}

// Table returns a table over the world as it is at each question.
func (w *World) Table() *proc.Table { return proc.NewTable(source{w}) }

// Change changes the machine.
func (w *World) Change(change func(m *Machine)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.m)
}

// Kill removes the process as if it had been killed and reaped.
func (w *World) Kill(pid int) {
	w.Change(func(m *Machine) {
		m.Procs = slices.DeleteFunc(m.Procs, func(p Proc) bool { return p.PID == pid })
	})
}

func (w *World) now() Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.m
	m.Procs = slices.Clone(m.Procs)
	return m
}

func (m Machine) proc(pid int) (Proc, bool) {
	i := slices.IndexFunc(m.Procs, func(p Proc) bool { return p.PID == pid })
	if i < 0 {
		return Proc{}, false
	}
	return m.Procs[i], true
}

// seen says whether /proc shows the process.
func (m Machine) seen(p Proc) bool { return !m.NoProc && !p.Hidden }

func (m Machine) started(p Proc) time.Time {
	if m.BootAt.IsZero() || p.NoStart {
		return time.Time{}
	}
	return m.BootAt.Truncate(time.Second).Add(time.Duration(p.Start) * (time.Second / TicksPerSecond))
}

func (m Machine) process(p Proc) proc.Process {
	return proc.Process{PID: p.PID, Name: p.Name, Started: m.started(p)}
}

// source answers proc's questions from a world.
type source struct{ w *World }

var errNoProc = errors.New("there is no /proc")

func (s source) Self() proc.Self {
	m := s.w.now()
	self := proc.Self{
		PID: m.PID, Host: m.Host, BootID: m.BootID, PIDNS: m.PIDNS, TimeNS: m.TimeNS,
		InitialNS: m.Initial, UID: m.UID, User: m.User,
	}
	if p, ok := m.proc(m.PID); ok && m.PID != 0 {
		self.PidfdIno = p.PidfdIno
		if !p.NoStart {
			self.StartTicks = p.Start
		}
		if at := m.started(p); !at.IsZero() {
			self.StartUnix = uint64(max(0, at.Unix()))
		}
	}
	return self
}

func (s source) BootTime() time.Time { return s.w.now().BootAt }

func (s source) Exists(pid int) bool {
	_, ok := s.w.now().proc(pid)
	return ok
}

func (s source) Look(pid int) (proc.Look, error) {
	m := s.w.now()
	if m.NoProc {
		return proc.Look{}, errNoProc
	}
	p, ok := m.proc(pid)
	if !ok || !m.seen(p) {
		return proc.Look{}, proc.ErrNoProcess
	}
	l := proc.Look{
		Process: m.process(p), Parent: p.Parent, Start: p.Start, HasStart: !p.NoStart, Thread: p.Thread,
		Condition: p.Condition, Zombie: p.Zombie, LiveThreads: p.LiveThreads,
	}
	if l.Condition == proc.Frozen { // the freezer does not show in the process's own state
		l.Condition = proc.Running
	}
	return l, nil
}

func (s source) Frozen(pid int) bool {
	m := s.w.now()
	p, ok := m.proc(pid)
	return ok && m.seen(p) && p.Condition == proc.Frozen
}

func (s source) Namespaces(pid int) (pidNS, timeNS uint64) {
	m := s.w.now()
	p, ok := m.proc(pid)
	if !ok || !m.seen(p) || p.NoNS {
		return 0, 0
	}
	pidNS, timeNS = p.PIDNS, p.TimeNS
	if pidNS == 0 && p.NSpid == nil {
		pidNS = m.PIDNS
	}
	if timeNS == 0 {
		timeNS = m.TimeNS
	}
	return pidNS, timeNS
}

func (s source) Pidfd(ino uint64) (int, error) {
	m := s.w.now()
	if m.NoPidfs {
		return 0, errors.New("the kernel has no pidfs")
	}
	for _, p := range m.Procs {
		if p.PidfdIno == ino && !p.Thread {
			return p.PID, nil
		}
	}
	return 0, proc.ErrReaped
}

func (s source) Nested() (map[int][]int, string) {
	m := s.w.now()
	if m.NoProc {
		return nil, errNoProc.Error()
	}
	byInner := make(map[int][]int)
	for _, p := range m.Procs {
		if len(p.NSpid) > 1 && m.seen(p) && !p.Thread {
			inner := p.NSpid[len(p.NSpid)-1]
			byInner[inner] = append(byInner[inner], p.PID)
		}
	}
	if m.HidesOthers {
		return byInner, "processes are hidden here"
	}
	return byInner, ""
}

func (s source) Locks() ([]proc.FileLock, error) {
	m := s.w.now()
	if m.NoProc {
		return nil, errNoProc
	}
	var locks []proc.FileLock
	for _, p := range m.Procs {
		for _, f := range p.Holds {
			locks = append(locks, proc.FileLock{PID: p.PID, Dev: f.Dev, Ino: f.Ino})
		}
		for _, f := range p.Waits {
			locks = append(locks, proc.FileLock{PID: p.PID, Dev: f.Dev, Ino: f.Ino, Waiting: true})
		}
	}
	return locks, nil
}

// OpenFiles numbers the descriptors of a process by their place in Holds, Waits and Writes.
func (s source) OpenFiles() (files []proc.OpenFile, denied []int, complete bool) {
	m := s.w.now()
	if m.NoProc {
		return nil, nil, false
	}
	for _, p := range m.Procs {
		switch {
		case !m.seen(p):
			continue
		case m.DeniesFDs && p.PID != m.PID:
			denied = append(denied, p.PID)
			continue
		}
		for fd, f := range p.files() {
			files = append(files, proc.OpenFile{
				PID: p.PID, FD: fd, Ino: f.Ino,
				Flock: fd < len(p.Holds),
				Write: fd >= len(p.Holds)+len(p.Waits),
			})
		}
	}
	return files, denied, m.Initial && !m.HidesOthers
}

func (s source) SameFile(f proc.OpenFile, dev, ino uint64) bool {
	p, ok := s.w.now().proc(f.PID)
	files := p.files()
	return ok && f.FD < len(files) && files[f.FD] == File{dev, ino}
}

func (p Proc) files() []File { return slices.Concat(p.Holds, p.Waits, p.Writes) }

func (s source) Describe(pid int) (proc.Details, error) {
	m := s.w.now()
	p, ok := m.proc(pid)
	if !ok || !m.seen(p) {
		return proc.Details{}, proc.ErrNoProcess
	}
	d := p.Details
	d.Process = m.process(p)
	for range m.Procs {
		if p, ok = m.proc(p.Parent); !ok {
			break
		}
		d.Parents = append(d.Parents, m.process(p))
	}
	return d, nil
}
