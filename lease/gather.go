package lease

import (
	"errors"
	"io/fs"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// gather looks at the lease file and its counter. It is what Inspect shows and what Claim decides by.
func (s *Store) gather(t *proc.Table, id string) (*verdict.LeaseFacts, []byte) {
	self := t.Self()
	f := &verdict.LeaseFacts{
		Seen:     verdict.Seen{Path: s.path(id, leaseSuffix), Host: self.Host, Boot: self.BootID},
		ID:       id,
		BadID:    badID(id),
		TTL:      s.ttl(),
		Interval: s.interval(),
	}
	file, err := record.Read(f.Path)
	f.Look = time.Now()
	f.File, f.Stamp, file.Path = file.Stat, file.Stamp, f.Path
	_ = s.at("looked")
	// After the lease: a claim raises the counter first, so read in this order it is never behind by itself.
	f.Counter = readCounter(s.path(id, counterSuffix))
	if err == nil {
		var rec record.Lease
		rec, err = record.DecodeLease(f.Path, file.Data)
		if err == nil {
			f.Record = &rec
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Missing = true
		s.memory.Forget(f.Path)
		return f, nil
	case err != nil:
		f.Problem = problem(f.Path, err)
	}
	f.Still = s.memory.Still(file, f.Look)
	if f.Record != nil {
		s.identify(t, self, f)
	}
	return f, file.Data
}

// identify judges the process that the record names.
func (s *Store) identify(t *proc.Table, self proc.Self, f *verdict.LeaseFacts) {
	r := f.Record
	_, local := record.FileSystem(s.Dir)
	id := proc.Identity{
		PID: r.PID, Host: r.Hostname, BootID: r.Ours.KernelBootID, StartUnix: r.PIDStartS,
		PIDNS: r.Ours.PIDNS, PidfdIno: r.Ours.PidfdIno, TimeNS: r.Ours.TimeNS,
		LastBeat: verdict.Milli(r.RenewedAtMS), ModTime: f.File.ModTime, LocalFS: local, ZeroUnknown: true,
	}
	// Ticks are counted in the holder's time namespace: without one they compare with nothing.
	if r.Ours.PIDStartTicks != 0 && r.Ours.TimeNS != 0 {
		id.StartTicks = &r.Ours.PIDStartTicks
	}
	f.Proc = t.Judge(id)
	f.Self = t.IsSelf(id)
	f.Beat = verdict.Milli(r.RenewedAtMS)
	if age, ok := s.bootAge(self, r); ok {
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
func (s *Store) lookInside(t *proc.Table, f *verdict.LeaseFacts) {
	path := s.path(f.ID, sectionSuffix)
	st, err := record.StampOf(path)
	if err != nil {
		return
	}
	f.Flock = st
	if f.Section = irregular(path, st.Mode); f.Section != nil {
		return
	}
	if st.Ino == 0 || !t.Flocked(st.Ino) {
		return
	}
	holders, _ := t.FlockHolders(st.Dev, st.Ino)
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
