package verdict

import (
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// The limits of locks and tokens. An age must be greater than its limit.
const (
	LockLate       = 15 * time.Second  // a heartbeat is overdue
	LockExpiry     = 75 * time.Second  // another machine's or an unknown holder is expired
	LongHeldAfter  = 600 * time.Second // a note, no alarm
	TornAfter      = 15 * time.Second  // a torn lock is honoured so long
	TokenMalformed = 60 * time.Second  // a malformed token blocks so long
)

// The interval and TTL of leases where a store names no others.
const (
	LeaseInterval = 5 * time.Second
	LeaseTTL      = 3 * LeaseInterval
)

// Seen is what a look found at a path; all kinds of entries share it.
type Seen struct {
	Path    string
	Problem *record.Error // nil: a record was read, or the file is missing
	File    record.Stat   // zero when it could not be opened
	Stamp   record.Stamp  // likewise
	Look    time.Time     // when it was looked at
	Still   time.Time     // since when its bytes were watched unchanged without a gap; zero: this is the first look
	Proc    proc.Finding  // of the process that the record names
	Beat    time.Time     // last renewal or heartbeat; by the boot-time clock where that counts
	Host    string        // this machine's host name, as gethostname says it
	Boot    string        // this machine's boot id; "" when unreadable
	Missing bool
	Self    bool // the process that the record names is this one
	Booted  bool // Beat was taken from the boot-time clock
}

// still is since when at the latest the file is known not to have changed, were stamp true. A stamp in the future,
// or none, is worth no more than the moment since when the file was watched.
func (s *Seen) still(stamp time.Time) time.Time {
	watched := s.Look
	if !s.Still.IsZero() {
		// Counted back from the look: a wall clock that was set back during the watch would put its beginning into
		// the future as well, and the stamp would be believed.
		watched = s.Look.Add(-max(0, s.Look.Sub(s.Still)))
	}
	if stamp.IsZero() || stamp.After(watched) {
		return watched
	}
	return stamp
}

// proven reports whether the holder is proven to run on this machine.
func (s *Seen) proven() bool { return s.Proc.Answer == proc.Alive }

// Counter is the epoch counter beside a lease.
type Counter struct {
	Path    string
	Missing bool
	Problem *record.Error // it is there and cannot be used
	Stamp   record.Stamp  // zero when it could not be read
	Value   uint64
}

// LeaseFacts is what was gathered about one lease.
type LeaseFacts struct {
	Seen
	ID            string
	TTL, Interval time.Duration
	Record        *record.Lease // nil when missing or unreadable
	Counter       Counter
	Section       *record.Error      // the flock file is there and cannot be used
	Flock         record.Stamp       // of the flock file; zero: there is none, or this system tells nothing of it
	Inside        []proc.FlockHolder // processes inside the critical section
	BadID         string             // why no claim is granted for this id; "" when it is an id
}

// LockFacts is what was gathered about one lock.
type LockFacts struct {
	Seen
	Record  *record.Lock
	Token   *TokenFacts // nil: none beside it
	Writers []int       // torn records only: processes that have the file open for writing, or flocked
}

// TokenFacts is what was gathered about one reclaim token.
type TokenFacts struct {
	Seen
	Record *record.Lock
}

// TempFacts is what was gathered about one temp file.
type TempFacts struct {
	Seen
	PID    uint32 // of the record, or else of the name; 0: unknown
	Record *record.Lock
}

// NextEpoch is the epoch that the next owner gets, or why there can be none: a counter that is damaged or
// lost must not restart below an epoch that was given out.
func (f *LeaseFacts) NextEpoch() (next uint64, refusal string) {
	var recorded uint64
	if f.Record != nil {
		recorded = f.Record.Epoch
	}
	last := max(recorded, f.Counter.Value)
	switch {
	case f.Counter.Problem != nil && recorded == 0:
		return 0, "its damaged epoch counter (" + f.Counter.Problem.Detail + "), with no readable lease to tell the last epoch"
	case f.Counter.Missing && f.Problem != nil:
		return 0, "its missing epoch counter, with no readable lease to tell the last epoch"
	case last+1 == 0:
		return 0, "its epoch counter, which is at its maximum"
	}
	return last + 1, ""
}

// Expires is when the lease runs out if it is not renewed: the moment after which its age is over the TTL.
func (f *LeaseFacts) Expires() time.Time {
	stamp := f.Beat
	if !f.proven() && !f.Booted && f.File.ModTime.After(stamp) {
		// Only a holder on this machine is judged by this machine's clock alone.
		stamp = f.File.ModTime
	}
	if f.Record == nil {
		stamp = f.File.ModTime
	}
	return f.still(stamp).Add(f.TTL)
}

// Expires is when a holder that cannot be proven here counts as gone, or a torn record as abandoned.
func (f *LockFacts) Expires() time.Time {
	if f.Record == nil {
		return f.still(f.File.ModTime).Add(TornAfter)
	}
	stamp := f.Beat
	if f.File.ModTime.After(stamp) {
		stamp = f.File.ModTime
	}
	return f.still(stamp).Add(LockExpiry)
}

// Holder tells whom the record names.
func (f *LeaseFacts) Holder() *Holder {
	r := f.Record
	if r == nil {
		return nil
	}
	return &Holder{
		PID: r.PID, Host: r.Hostname, OwnerBootID: r.OwnerBootID, BlockID: r.BlockID, SessionID: r.SessionID,
		Channel: r.Channel, Version: r.Version, Epoch: r.Epoch, ClaimID: r.ClaimID,
		Acquired: Milli(r.AcquiredAtMS), Renewed: Milli(r.RenewedAtMS),
	}
}

// Holder tells whom the record names.
func (f *LockFacts) Holder() *Holder { return lockHolder(f.Record) }

// Holder tells who made the token.
func (f *TokenFacts) Holder() *Holder { return lockHolder(f.Record) }

// Holder tells who made the temp, from its record or else from its name.
func (f *TempFacts) Holder() *Holder {
	if f.Record == nil && f.PID != 0 {
		return &Holder{PID: f.PID}
	}
	return lockHolder(f.Record)
}

func lockHolder(r *record.Lock) *Holder {
	if r == nil {
		return nil
	}
	return &Holder{
		PID: r.PID, Host: r.Hostname, WriterEpoch: r.WriterEpoch,
		Acquired: MilliU(r.CreatedAtMS), Renewed: MilliU(r.HeartbeatAtMS),
	}
}
