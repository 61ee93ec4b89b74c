package lease

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// looking is one look at any number of leases: the same process table, asked once who we are.
type looking struct {
	store  *Store
	table  *proc.Table
	self   proc.Self
	prefix string // of all paths
	apart  bool   // nobody asks who is in the critical section
}

func (s *Store) look(t *proc.Table) *looking {
	t = t.AsNow()
	// What Join makes of a single name, without making it anew for each.
	prefix := strings.TrimSuffix(filepath.Join(s.Dir, "x"), "x")
	return &looking{store: s, table: t, self: t.Self(), prefix: prefix}
}

// gather looks at the lease file and its counter. It is what Inspect shows and what Claim decides by.
func (s *Store) gather(t *proc.Table, id string) (*verdict.LeaseFacts, []byte) {
	return s.look(t).gather(id, nil)
}

// gather reads the lease, and its counter unless that is unchanged since known, which may be nil.
func (k *looking) gather(id string, known *verdict.LeaseFacts) (*verdict.LeaseFacts, []byte) {
	s := k.store
	f := &verdict.LeaseFacts{
		Seen:     verdict.Seen{Path: k.prefix + id + leaseSuffix, Host: k.self.Host, Boot: k.self.BootID},
		ID:       id,
		BadID:    badID(id),
		TTL:      s.ttl(),
		Interval: s.interval(),
	}
	file, rec, err := record.ReadLease(f.Path)
	f.Look = time.Now()
	f.File, f.Stamp, file.Path = file.Stat, file.Stamp, f.Path
	_ = s.at("looked")
	// After the lease: a claim raises the counter first, so read in this order it is never behind by itself.
	counter := k.prefix + id + counterSuffix
	if known != nil && known.Counter.Problem == nil && known.Counter.Stamp.Holds(counter, known.Look) {
		f.Counter = known.Counter
	} else {
		f.Counter = readCounter(counter)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Missing = true
		s.memory.Forget(f.Path)
		return f, nil
	case err != nil:
		f.Problem = problem(f.Path, err)
	default:
		f.Record = &rec
	}
	f.Still = s.memory.Still(file, f.Look)
	if f.Record != nil {
		k.identify(f)
	}
	return f, file.Data
}

// identify judges the process that the record names.
func (k *looking) identify(f *verdict.LeaseFacts) {
	r := f.Record
	id := proc.Identity{
		PID: r.PID, Host: r.Hostname, BootID: r.Ours.KernelBootID, StartUnix: r.PIDStartS,
		PIDNS: r.Ours.PIDNS, PidfdIno: r.Ours.PidfdIno, TimeNS: r.Ours.TimeNS,
		LastBeat: verdict.Milli(r.RenewedAtMS), ModTime: f.File.ModTime, ZeroUnknown: true,
	}
	if id.BootID != "" && id.BootID != k.self.BootID {
		_, id.LocalFS = record.FileSystem(k.store.Dir) // only a record of another boot is judged by it
	}
	// Ticks are counted in the holder's time namespace: without one they compare with nothing.
	if r.Ours.PIDStartTicks != 0 && r.Ours.TimeNS != 0 {
		id.StartTicks = &r.Ours.PIDStartTicks
	}
	f.Proc = k.table.Judge(id)
	f.Self = k.table.IsSelf(id)
	f.Beat = id.LastBeat
	if age, ok := k.store.bootAge(k.self, r); ok {
		f.Beat, f.Booted = f.Look.Add(-age), true
	}
}

// bootAge is the age of the last renewal by the boot-time clock, if the record's counts here: that clock runs
// through suspend and is not set by anybody.
func (s *Store) bootAge(self proc.Self, r *record.Lease) (time.Duration, bool) {
	o := &r.Ours
	if o.BeatBootMS <= 0 || self.BootID == "" || o.KernelBootID != self.BootID || o.TimeNS == 0 || o.TimeNS != self.TimeNS {
		return 0, false
	}
	age := s.bootClock() - time.Duration(o.BeatBootMS)*time.Millisecond
	if o.BeatBootMS > int64(time.Duration(1<<62)/time.Millisecond) || age < -2*time.Second {
		return 0, false
	}
	return max(0, age), true
}

// lookInside finds what would keep a claim out of the critical section: a flock file that is none, or a stopped
// process that holds it.
func (k *looking) lookInside(f *verdict.LeaseFacts) {
	path := k.prefix + f.ID + sectionSuffix
	st, err := record.StampOf(path)
	if err != nil {
		return
	}
	f.Flock = st
	if f.Section = irregular(path, st.Mode); f.Section != nil {
		return
	}
	if k.apart || st.Ino == 0 || !k.table.Flocked(st.Ino) {
		return
	}
	holders, _ := k.table.FlockHolders(st.Dev, st.Ino)
	for _, h := range holders {
		if !h.Waiting {
			f.Inside = append(f.Inside, h)
		}
	}
}

// readCounter reads the epoch counter. A counter that is there and cannot be used is never taken for a missing one.
func readCounter(path string) verdict.Counter {
	c := verdict.Counter{Path: path}
	file, err := record.Read(path)
	if err == nil {
		c.Stamp = file.Stamp
		c.Value, err = record.DecodeCounter(path, file.Data)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Missing = true
	case err != nil:
		c.Problem = problem(path, err)
	}
	return c
}

// irregular says what stands in the place of a flock file that is none; nil if it may be one.
func irregular(path string, mode fs.FileMode) *record.Error {
	if mode.IsRegular() {
		return nil
	}
	// Read opens nothing but a regular file, and knows the words for what else there is.
	_, err := record.Read(path)
	e, _ := errors.AsType[*record.Error](err)
	return e
}

// problem turns whatever reading said into an unreadable file; an error of the system's counts as denied.
func problem(path string, err error) *record.Error {
	if e, ok := errors.AsType[*record.Error](err); ok {
		return e
	}
	e := &record.Error{Op: "read", Path: path, Problem: record.Denied, Detail: err.Error(), Err: err}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		e.Detail = p.Err.Error()
	}
	return e
}
