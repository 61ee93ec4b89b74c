// Package record reads and writes the files of leases, locks and tokens: the safe open, the strict
// decoder, the exact encoder, atomic replacement and creation.
//
// A record that is read here came from a regular file of at most MaxSize bytes, opened without following a
// link and without waiting. Whatever cannot be read so is an *Error that says what is wrong and where.
package record

import (
	"fmt"
	"io/fs"
	"time"
)

// MaxSize is the size, in bytes, beyond which a file is not read.
const MaxSize = 64 << 10

// Problem says why a file is unreadable.
type Problem string

// The problems.
const (
	Malformed  Problem = "malformed"   // read, but no record
	NotRegular Problem = "not-regular" // a symlink, FIFO, directory, socket or device
	TooLarge   Problem = "too-large"   // over MaxSize
	Denied     Problem = "denied"      // may not be opened or read, or reading fails
)

// Error is an unreadable file. It unwraps to the system's error where there is one.
type Error struct {
	Op      string // "open", "read", "parse"
	Path    string
	Problem Problem
	Offset  int64  // Malformed: the first offending byte; for a torn record the end of what is there
	Torn    bool   // Malformed: empty, all NUL, or a proper prefix of a record
	Detail  string // one phrase for a person: "a symlink", "duplicate key \"pid\"", "owned by uid 0, mode 0600"
	Err     error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s: %s", e.Op, e.Path, e.Problem)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Stat is what fstat said of the file that was read.
type Stat struct {
	Dev, Ino uint64
	Size     int64
	ModTime  time.Time
	Mode     fs.FileMode
	UID      uint32
}

// File is one safe look at a file.
type File struct {
	Path string
	Data []byte
	Stat Stat
	// Stamp is of a moment before Data was read, or of one at which it was still the same.
	Stamp Stamp
}

// Lease is the record of an AgentMux lease, with our optional fields and whatever else stood in it.
type Lease struct {
	InstanceID   string
	OwnerBootID  string
	BlockID      string
	SessionID    *string
	PID          uint32
	AcquiredAtMS int64
	RenewedAtMS  int64
	Epoch        uint64 // 0: unknown (older builds), likewise what follows
	Hostname     string
	PIDStartS    uint64
	Channel      string
	Version      string
	ClaimID      string
	Ours         Ours
	Extra        []Extra // unknown keys in their order
}

// Lock is the record of an AFT lock or of a token, with our optional fields and whatever else stood in it.
type Lock struct {
	PID              uint32
	Hostname         string
	ProcessStartTime *uint64 // Linux: clock ticks; macOS: microseconds since the epoch; nil: unknown
	BootID           *string // nil: unknown
	CreatedAtMS      uint64
	HeartbeatAtMS    uint64
	WriterEpoch      string // empty in old files
	Ours             Ours
	Extra            []Extra
}

// Ours are the fields that only our records carry. All are optional; one with a wrong type counts as absent.
type Ours struct {
	PIDNS         uint64
	PidfdIno      uint64
	TimeNS        uint64
	Guard         *Guard // tokens
	BeatBootMS    int64  // boot-time clock at the last renewal or heartbeat, in ms; 0: absent
	KernelBootID  string // leases
	PIDStartTicks uint64 // leases; 0: absent
}

// Guard names the flocked guard file under which a token was made. In JSON it is {"dev":1,"ino":2}.
type Guard struct{ Dev, Ino uint64 }

// Extra is an unknown key with its raw JSON value, kept by our renewals. The value of a lock's is compact.
type Extra struct {
	Key string
	Raw []byte
}
