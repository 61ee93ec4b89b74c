package fslock

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// clockSlack is how far a boot-time stamp may lie ahead before it counts as absent.
const clockSlack = 2 * time.Second

// look is one look at any number of files: the same process table, and each directory's file system asked for once.
type look struct {
	locker *Locker
	table  *proc.Table
	self   proc.Self
	brief  bool // as proc.Identity has it

	listed map[string]bool // the tokens that are there; nil: nobody knows

	mu    sync.Mutex
	local map[string]bool // by directory
}

func (l *Locker) look(table *proc.Table) *look {
	table = table.AsNow()
	return &look{locker: l, table: table, self: table.Self(), local: make(map[string]bool)}
}

func (k *look) lock(path string) Info {
	info := k.glanceAtLock(path)
	info.Verdict = info.Facts.Judge(info.Facts.Look)
	return info
}

// glanceAtLock leaves the verdict to the caller.
func (k *look) glanceAtLock(path string) Info {
	f := &verdict.LockFacts{}
	rec, raw := k.see(&f.Seen, path)
	f.Record = rec
	k.users(f)
	info := Info{Path: path, Facts: f, Raw: raw}
	if f.Token = k.beside(f); f.Token != nil {
		token := f.Token.Token(f.Look)
		info.Token = &token
	}
	return info
}

// users finds who is at work on a torn record. What is being written is not abandoned; neither is an empty file that
// another program flocks and never writes to.
func (k *look) users(f *verdict.LockFacts) {
	if f.Problem == nil || !f.Problem.Torn {
		return
	}
	f.Writers, _ = k.table.Writers(f.File.Dev, f.File.Ino)
	if len(f.Writers) > 0 || !k.table.Flocked(f.File.Ino) {
		return
	}
	holders, _ := k.table.FlockHolders(f.File.Dev, f.File.Ino)
	for _, h := range holders {
		if !h.Waiting {
			f.Writers = append(f.Writers, h.PID)
		}
	}
}

// beside looks at the token beside a lock; nil: there is none.
func (k *look) beside(f *verdict.LockFacts) *verdict.TokenFacts {
	if f.Problem != nil && f.Problem.Problem == record.Denied {
		if _, err := os.Lstat(f.Path); err != nil {
			// The directory does not say what is in it: a token that nobody saw is not told.
			return nil
		}
	}
	dir, name := filepath.Split(f.Path)
	path := dir + record.TokenName(name)
	// Most have none. A lock that went since the listing may have left one behind.
	none := k.listed != nil && f.Record != nil && !k.listed[path]
	if !none {
		_, err := record.StampOf(path)
		none = errors.Is(err, fs.ErrNotExist)
	}
	if none {
		k.locker.memory.Forget(path)
		return nil
	}
	t := &verdict.TokenFacts{}
	rec, _ := k.see(&t.Seen, path)
	// A lock's name can be so long that it can have no token.
	if t.Missing || t.Problem != nil && errors.Is(t.Problem, syscall.ENAMETOOLONG) {
		return nil
	}
	t.Record = rec
	return t
}

func (k *look) token(path string) TokenInfo {
	info := k.glanceAtToken(path)
	info.Verdict = info.Facts.Judge(info.Facts.Look)
	return info
}

func (k *look) glanceAtToken(path string) TokenInfo {
	f := &verdict.TokenFacts{}
	rec, raw := k.see(&f.Seen, path)
	f.Record = rec
	return TokenInfo{Path: path, Facts: f, Token: f.Token(f.Look), Raw: raw}
}

func (k *look) temp(path string) TempInfo {
	info := k.glanceAtTemp(path)
	info.Verdict = info.Facts.Judge(info.Facts.Look)
	return info
}

func (k *look) glanceAtTemp(path string) TempInfo {
	f := &verdict.TempFacts{}
	rec, raw := k.see(&f.Seen, path)
	switch {
	case rec != nil:
		f.Record, f.PID = rec, rec.PID
	case f.Problem != nil && f.Problem.Problem == record.Malformed && strings.HasPrefix(filepath.Base(path), ".registry-tmp-"):
		k.leaseTemp(f, raw)
	case f.Problem != nil:
		k.namedTemp(f)
	}
	return TempInfo{Path: path, Facts: f, Raw: raw}
}

// see reads what is at path, judges the process that its record names and takes note for the next look.
func (k *look) see(s *verdict.Seen, path string) (*record.Lock, []byte) {
	s.Path, s.Host, s.Boot = path, k.self.Host, k.self.BootID
	file, rec, err := record.ReadLock(path)
	s.Look = time.Now()
	return k.note(s, file, rec, err)
}

// note fills in what reading said.
func (k *look) note(s *verdict.Seen, file record.File, rec record.Lock, err error) (*record.Lock, []byte) {
	path := s.Path
	s.File, s.Stamp = file.Stat, file.Stamp
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Missing = true
		k.locker.memory.Forget(path)
		return nil, nil
	case err != nil:
		s.Problem = problem(path, err)
		if s.Problem.Problem != record.Malformed {
			// Nothing was read, so nothing can be said to have stayed the same.
			k.locker.memory.Forget(path)
			return nil, nil
		}
		if file.Path == "" {
			// It is rewritten faster than it can be read. Without a time it would count as long abandoned.
			s.File.ModTime = s.Look
			k.locker.memory.Forget(path)
			return nil, nil
		}
		s.Still = k.locker.memory.Still(file, s.Look)
		return nil, file.Data
	}
	s.Still = k.locker.memory.Still(file, s.Look)
	k.identify(s, &rec)
	return &rec, file.Data
}

// identify judges the process that the record names, and when it last beat.
func (k *look) identify(s *verdict.Seen, r *record.Lock) {
	s.Beat = verdict.MilliU(r.HeartbeatAtMS)
	id := proc.Identity{
		PID: r.PID, Host: r.Hostname, StartTicks: r.ProcessStartTime,
		PIDNS: r.Ours.PIDNS, PidfdIno: r.Ours.PidfdIno, TimeNS: r.Ours.TimeNS,
		LastBeat: s.Beat, ModTime: s.File.ModTime, Brief: k.brief,
	}
	if r.BootID != nil {
		id.BootID = *r.BootID
	}
	if id.BootID != "" && id.BootID != k.self.BootID {
		id.LocalFS = k.isLocal(s.Path) // only a record of another boot is judged by it
	}
	s.Proc = k.table.Judge(id)
	s.Self = k.table.IsSelf(id)
	if age, ok := k.bootAge(id.BootID, &r.Ours); ok {
		s.Beat, s.Booted = s.Look.Add(-age), true
	}
}

// bootAge is the age of the last beat by the boot-time clock, if the record's counts here: that clock runs through
// suspend and is set by nobody, but another boot or time namespace has another one.
func (k *look) bootAge(bootID string, o *record.Ours) (time.Duration, bool) {
	if o.BeatBootMS <= 0 || k.self.BootID == "" || bootID != k.self.BootID || o.TimeNS == 0 || o.TimeNS != k.self.TimeNS {
		return 0, false
	}
	ahead := o.BeatBootMS - k.locker.bootClock().Milliseconds()
	if ahead > clockSlack.Milliseconds() {
		return 0, false
	}
	return time.Duration(max(0, -ahead)) * time.Millisecond, true
}

// isLocal reports whether path lies on a file system of which no other machine has a share.
func (k *look) isLocal(path string) bool {
	dir, _ := filepath.Split(path)
	k.mu.Lock()
	local, ok := k.local[dir]
	k.mu.Unlock()
	if ok {
		return local
	}
	local = k.locker.isLocal(cmp.Or(dir, "."))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.local[dir] = local
	return local
}

// leaseTemp judges the process that the record of a lease's temp names.
func (k *look) leaseTemp(f *verdict.TempFacts, raw []byte) {
	r, err := record.DecodeLease(f.Path, raw)
	if err != nil {
		return
	}
	f.Problem, f.PID, f.Beat = nil, r.PID, verdict.Milli(r.RenewedAtMS)
	id := proc.Identity{
		PID: r.PID, Host: r.Hostname, BootID: r.Ours.KernelBootID, StartUnix: r.PIDStartS,
		PIDNS: r.Ours.PIDNS, PidfdIno: r.Ours.PidfdIno, TimeNS: r.Ours.TimeNS,
		LastBeat: f.Beat, ModTime: f.File.ModTime, LocalFS: k.isLocal(f.Path), ZeroUnknown: true,
	}
	if r.Ours.PIDStartTicks != 0 && r.Ours.TimeNS != 0 {
		id.StartTicks = &r.Ours.PIDStartTicks
	}
	f.Proc = k.table.Judge(id)
	f.Self = k.table.IsSelf(id)
}

// namedTemp judges the process that the name of an unreadable temp tells. A name tells no host: only on a local
// file system can it have been one of this machine.
func (k *look) namedTemp(f *verdict.TempFacts) {
	_, pid, ok := record.ParseTemp(filepath.Base(f.Path))
	if !ok || pid == 0 {
		return
	}
	f.PID = pid
	id := proc.Identity{PID: pid, LastBeat: f.File.ModTime, ModTime: f.File.ModTime, ZeroUnknown: true}
	if id.LocalFS = k.isLocal(f.Path); id.LocalFS {
		id.Host = k.self.Host
	}
	f.Proc = k.table.Judge(id)
	f.Self = k.table.IsSelf(id)
}

// problem turns whatever reading said into an unreadable file; an error of the system's counts as denied.
func problem(path string, err error) *record.Error {
	if e, ok := errors.AsType[*record.Error](err); ok {
		return e
	}
	e := &record.Error{Op: "read", Path: path, Problem: record.Denied, Detail: err.Error(), Err: err}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		e.Op, e.Detail = p.Op, p.Err.Error()
	}
	return e
}
