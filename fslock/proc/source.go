package proc

import (
	"errors"
	"time"
)

// ErrNoProcess says that no process has the pid.
var ErrNoProcess = errors.New("no such process")

// ErrReaped is a Source's answer for a pidfd inode whose process is gone, or lives outside our pid namespace.
var ErrReaped = errors.New("reaped, or outside our pid namespace")

// Source is the raw view of one machine that a Table judges by. It is exported for package proctest only, which
// has made-up machines; everybody else calls Local. Methods may be called from several goroutines at once.
type Source interface {
	Self() Self
	// BootTime is the wall time at which the machine booted; zero when unknown.
	BootTime() time.Time
	// Exists is false only when the kernel says that there is no such process; a refusal means that there is one.
	Exists(pid int) bool
	// Look returns ErrNoProcess when nothing is seen under the pid, which may only mean that it is hidden, and
	// another error when it cannot be looked at.
	Look(pid int) (Look, error)
	// Frozen says whether the cgroup freezer is seen to hold the process.
	Frozen(pid int) bool
	// Namespaces returns the inodes of the process's pid and time namespaces; 0: cannot be read.
	Namespaces(pid int) (pidNS, timeNS uint64)
	// Pidfd finds a process by the inode of its pidfd. ErrReaped: there is none; another error: cannot be asked.
	Pidfd(ino uint64) (pid int, err error)
	// Nested returns the processes of pid namespaces below ours, by the pid that each has in its own. missing says
	// why there may be more of them than could be seen; empty: these are all.
	Nested() (byInner map[int][]int, missing string)
	// Locks returns the kernel's flocks and who waits for one.
	Locks() ([]FileLock, error)
	// OpenFiles returns what every process has open. denied are the processes that could not be looked into;
	// complete is false when there may be processes that are not seen at all.
	OpenFiles() (files []OpenFile, denied []int, complete bool)
	// SameFile says whether f is the file of that device and inode: the inode of an OpenFile alone is no proof.
	SameFile(f OpenFile, dev, ino uint64) bool
	Describe(pid int) (Details, error)
}

// Look is one consistent look at a process.
type Look struct {
	Process
	Parent      int
	Start       uint64 // Linux: clock ticks since boot; macOS: microseconds since the epoch
	HasStart    bool   // Start is known, in the unit that records of this platform use
	Thread      bool   // the number belongs to a thread of another process
	Condition   Condition
	Zombie      bool // the main thread has exited
	LiveThreads int  // of a zombie: how many other threads still run; negative: cannot be seen
}

// exited says that nothing of the process runs any more.
func (l Look) exited() bool { return l.Zombie && l.LiveThreads == 0 }

// FileLock is one flock of the kernel's list, or one process that waits for it.
type FileLock struct {
	PID      int // who took it: it may be gone while a child holds the lock
	Dev, Ino uint64
	Waiting  bool
}

// OpenFile is one descriptor of a process.
type OpenFile struct {
	PID, FD int
	Ino     uint64
	Write   bool // open for writing
	Flock   bool // an flock is held through it
}
