// Package watch looks at the disk when told to or when time passes and yields immutable snapshots.
package watch

import (
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

// Kind is what an entry is.
type Kind uint8

// The kinds.
const (
	Lease Kind = iota + 1
	Lock
	Token
	Temp
)

func (k Kind) String() string {
	switch k {
	case Lease:
		return "lease"
	case Lock:
		return "lock"
	case Token:
		return "token"
	case Temp:
		return "temp"
	default:
		return "unknown"
	}
}

// Entry is one lease, lock, token or temp as it was looked at. It is immutable.
type Entry struct {
	Kind     Kind
	Root     string // the root's path, as in Snapshot.Roots
	Path     string // bytes as on disk, not made safe
	ID       string // leases
	Name     string // what a person knows it by, decoded from the storage; "" when unknown
	Checkout string // the path of what a hashed key in Path stands for; "" when unknown
	Subject  verdict.Subject
	// Verdict is Subject judged at Snapshot.Time, without Evidence, Originals and Next, which Judge tells. Its Sentence may
	// tell the age of an earlier moment: Judge tells that of any.
	Verdict verdict.Verdict
	Epoch   uint64         // leases: of the record, or of the counter when free; 0: unknown
	Token   *verdict.Token // locks: the token beside it
	LockOf  string         // tokens and temps: the path of the lock they belong to
	Raw     []byte         // the file's bytes, nil when not read
	Waiters []Waiter       // leases and locks: who waits for it, by pid; never changed in place
	// Hidden: the kernel tells of an flock on the lease's flock file, and nobody can be seen who holds it: such a
	// process is in another namespace, or /proc hides it. Inside a pid namespace the kernel may not even tell.
	Hidden bool
	// Unseen is since when the entry's place cannot be looked at: what is told is what was seen there last, and nobody
	// knows what has become of it. Zero: it is as the snapshot's look found it. Only snapshots of Run have such entries.
	Unseen time.Time
}

// How a Waiter waits.
const (
	ByFlock = "flock" // blocked in flock(2) on a lease's flock file
	ByPoll  = "poll"  // tries again and again to make a lock
)

// Waiter is a process of this machine that waits for a lease's critical section or for a lock.
type Waiter struct {
	PID     int    // as seen from here
	Name    string // its command name, not made safe for a terminal; "": unknown
	How     string // ByFlock or ByPoll
	Stopped bool   // stopped, traced or frozen
}

// Root is one directory or file that is looked at.
type Root struct {
	Path     string
	Kind     string        // "agentmux", "aft", "agentmux+aft", "plain", "file", "missing"
	ChosenBy string        // "argument", or the rule or variable that chose it
	FS       string        // file system type
	Local    bool          // on the allow-list of local file systems
	Watch    string        // "inotify" or "events", "poll", "none"
	Every    time.Duration // between two looks of "poll"; 0 otherwise
	Reason   string        // why it polls, or is missing; "" otherwise

	place place // the directory at the path; a file is replaced with each beat
}

// EntryError is a place that could not be looked at; its neighbours are there all the same.
type EntryError struct {
	Path string
	Err  error
}

// Snapshot is one look at all roots. It is immutable.
type Snapshot struct {
	Seq      uint64
	Time     time.Time
	Observer proc.Self
	Roots    []Root
	Entries  []*Entry // by root, then kind and path; those that did not change are shared with older snapshots
	Errors   []EntryError
}
