// Package proc says who a process is and whether it still runs.
//
// Three answers: alive and dead are proven, unknown is everything else and the zero value. Only a proof of
// death may shorten a wait, so every doubt (a hidden /proc, another pid namespace, another machine, an
// unreadable boot id) falls to unknown or to alive, never to dead.
package proc

import "time"

// Liveness is the answer to "does the recorded holder still run?".
type Liveness uint8

// The answers. Unknown is the zero value, so that a forgotten field fails closed.
const (
	Unknown Liveness = iota
	Alive
	Dead
)

func (l Liveness) String() string {
	switch l {
	case Alive:
		return "alive"
	case Dead:
		return "dead"
	default:
		return "unknown"
	}
}

// Cause is how a death was proven.
type Cause string

// The causes of Dead.
const (
	Gone     Cause = "gone"     // no such process
	Recycled Cause = "recycled" // the pid belongs to another process now
	Reboot   Cause = "reboot"   // this machine booted since
	Zombie   Cause = "zombie"   // exited, not reaped by its parent
)

// Speaks says for which answer a check speaks.
type Speaks uint8

// What a check speaks for.
const (
	Neither Speaks = iota
	ForAlive
	ForDead
)

func (s Speaks) String() string {
	switch s {
	case ForAlive:
		return "alive"
	case ForDead:
		return "dead"
	default:
		return "neither"
	}
}

// Check is one piece of evidence: what was looked at and what it showed, or why it was skipped.
type Check struct {
	Name    string // short, stable: "host", "boot id", "pid namespace", "pid", "start", "pidfd", "inner pid", "state", "heartbeat", ...
	Saw     string // what was seen, one phrase
	Speaks  Speaks
	Skipped string // why it was not done; Saw is empty then
}

// Machine says which machine a record names.
type Machine uint8

// The machines.
const (
	Unnamed   Machine = iota // none is named, or it cannot be compared
	Here                     // this machine
	Elsewhere                // another machine
)

// Condition is how a living process stands.
type Condition uint8

// The conditions; all but Running make a holder "stopped".
const (
	Running Condition = iota
	Stopped           // by a signal
	Traced            // under a debugger
	Frozen            // by the cgroup freezer
)

// Identity is what a record says of its holder's process.
type Identity struct {
	PID         uint32
	Host        string    // as recorded; compared trimmed, lower-cased, without a trailing dot
	BootID      string    // kernel boot id; empty: not recorded
	StartTicks  *uint64   // field 22 of /proc/<pid>/stat; nil: not recorded
	StartUnix   uint64    // AgentMux's pid_start_s, seconds since the epoch; 0: not recorded
	PIDNS       uint64    // inode of the holder's pid namespace; 0: not recorded
	PidfdIno    uint64    // inode of the holder's pidfd; 0: not recorded
	TimeNS      uint64    // inode of the holder's time namespace; 0: not recorded
	LastBeat    time.Time // last renewal or heartbeat as recorded
	ModTime     time.Time // of the record's file
	LocalFS     bool      // the record lies on a local file system of the allow-list
	ZeroUnknown bool      // pid 0 is unknown (leases), not dead (locks)
	Brief       bool      // no Checks are wanted, nor whether a cgroup is frozen: for whoever asks ten times a second
}

// Process is one process as it is named to a person.
type Process struct {
	PID     int
	Name    string    // comm; text from the kernel, not made safe for a terminal
	Started time.Time // zero: unknown
}

// Under is what stands under the recorded pid number here, whoever it is: the originals look at nothing else.
type Under struct {
	Exists     bool   // kill(pid, 0) does not say ESRCH
	Readable   bool   // its /proc entry can be read; the rest is zero otherwise
	StartTicks uint64 // field 22 of its stat
	StartUnix  uint64 // as AgentMux computes it
}

// Finding is what Judge found, with its evidence.
type Finding struct {
	Answer    Liveness
	Machine   Machine   // which machine the record names
	Condition Condition // for Alive only
	Legacy    bool      // alive by pid alone
	ClockStep bool      // alive, but its recorded start time was moved by a clock step
	Cause     Cause     // for Dead only
	Why       string    // for Unknown: one phrase, "another pid namespace", "processes are hidden here", ...
	PID       int       // the pid under which the holder is seen from here; 0: not seen
	Occupant  Process   // the process that has the recorded pid now, if any
	Parent    Process   // for a zombie: who has not reaped it
	Under     Under     // filled only where the record's host name is ours
	Checks    []Check   // never empty, but for a Brief question
}

// Self is this process and its machine, as it would record itself.
type Self struct {
	PID        int
	Host       string // gethostname as it is; "" when unknown
	BootID     string // "" when unreadable
	PIDNS      uint64 // 0 when unreadable, likewise below
	TimeNS     uint64
	PidfdIno   uint64
	StartTicks uint64
	StartUnix  uint64 // btime + StartTicks / clock ticks, as AgentMux computes it
	InitialNS  bool   // in the initial pid namespace
	UID        int
	User       string
}

// Details is what a person wants to see of a process; never used for identity on Linux.
type Details struct {
	Process
	Command    string // joined command line
	User       string
	Status     string // "running", "sleeping", "stopped", "zombie", ...
	CPUPercent float64
	MemoryRSS  uint64    // bytes
	Parents    []Process // nearest first
}

// FlockHolder is a process that holds an flock, or has the locked file open, or waits for it.
type FlockHolder struct {
	Process
	Stopped bool // stopped, traced or frozen
	Waiting bool // blocked in flock(2)
}
