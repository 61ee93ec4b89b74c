package proc

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// maxPID is the largest number that is ever passed to kill: larger ones would turn negative and name a group.
const maxPID = math.MaxInt32

// initialTimeNS is the inode of the time namespace that every Linux machine starts with.
const initialTimeNS = 0xEFFFFFFA

// startTolerance is how far, in seconds, a recorded start time may be off: both sides cut to whole seconds.
const startTolerance = 2

// Judge says whether the holder that a record names still runs, with the evidence for every check that was made or
// skipped. Dead is a proof at the moment of the call; Alive can be outdated when it is read; Unknown carries a
// reason in Why. The identity comes from a file that anybody may have written: the answer is as true as the record.
//
// The findings of a Batch may share their Checks: they are not to be changed.
func (t *Table) Judge(id Identity) Finding {
	if t.memo != nil {
		return t.memo.judge(t, id)
	}
	return t.inquire(id).f
}

func (t *Table) inquire(id Identity) *inquiry {
	q := &inquiry{t: t, id: id, self: t.Self()}
	if !id.Brief {
		q.f.Checks = make([]Check, 0, 9)
	}
	if q.machine() && q.pidInRange() {
		q.process()
	}
	if q.host && !id.Brief {
		q.under()
	}
	return q
}

// under fills in what the originals would see. They know neither boots nor namespaces, so neither is asked here.
func (q *inquiry) under() {
	if q.id.PID == 0 || q.id.PID > maxPID {
		return
	}
	s := q.recorded()
	q.f.Under = Under{Exists: s.exists, Readable: s.seen}
	if s.seen {
		q.f.Under.StartTicks = s.Start
		q.f.Under.StartUnix = uint64(max(0, s.Started.Unix()))
	}
}

// inquiry is one judgement on its way.
type inquiry struct {
	t    *Table
	id   Identity
	self Self
	f    Finding

	own     bool   // the record names our boot
	host    bool   // the record names our host
	foreign bool   // the record was made in another pid namespace than ours
	ticks   bool   // the recorded ticks can be compared with ours
	atPID   *sight // what has the recorded pid here; nil: not looked at yet
	reaped  bool   // pidfs says that the holder is gone
	doubt   bool   // a process in a nested pid namespace may be the holder
	missing string // why more such processes may exist than are seen

	since time.Time // the finding is that of every last beat from here on; zero: of any
	alone bool      // it is that of this very last beat
}

// recorded looks at the recorded pid, once.
func (q *inquiry) recorded() sight {
	if q.atPID == nil {
		s := q.t.look(int(q.id.PID))
		q.atPID = &s
	}
	return *q.atPID
}

func (q *inquiry) saw(name string, speaks Speaks, format string, args ...any) {
	if q.id.Brief {
		return
	}
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	q.f.Checks = append(q.f.Checks, Check{Name: name, Saw: format, Speaks: speaks})
}

func (q *inquiry) skip(name, why string) {
	if q.id.Brief {
		return
	}
	q.f.Checks = append(q.f.Checks, Check{Name: name, Skipped: why})
}

// speaks changes for which answer a check speaks, once it is known what it weighs.
func (q *inquiry) speaks(name string, s Speaks) {
	for i := range q.f.Checks {
		if q.f.Checks[i].Name == name && q.f.Checks[i].Skipped == "" {
			q.f.Checks[i].Speaks = s
		}
	}
}

func (q *inquiry) unknown(why string) { q.f.Answer, q.f.Why = Unknown, why }

func (q *inquiry) dead(cause Cause) { q.f.Answer, q.f.Cause = Dead, cause }

// machine settles which machine the record names and returns true when it is this one.
func (q *inquiry) machine() bool {
	recorded := strings.TrimSpace(q.id.BootID)
	q.host = sameHost(q.id.Host, q.self.Host)
	named := normalHost(q.id.Host) != ""
	switch {
	case q.host:
		q.saw("host", Neither, "our own, %q", q.id.Host)
	case named:
		q.saw("host", Neither, "%q, ours is %q", q.id.Host, q.self.Host)
	default:
		q.skip("host", "the record names none")
	}

	switch {
	case recorded == "":
		q.skip("boot id", "not recorded")
		switch {
		case q.host:
			q.f.Machine = Here
		case named && normalHost(q.self.Host) != "":
			q.f.Machine = Elsewhere
			q.unknown("another machine")
		case named:
			q.unknown("our own host name is not known")
		default:
			q.unknown("the record names no machine")
		}
	case q.self.BootID == "":
		q.skip("boot id", "our own cannot be read")
		q.unknown("our own boot id cannot be read")
		if named && !q.host && normalHost(q.self.Host) != "" {
			q.f.Machine = Elsewhere
		}
	case recorded == q.self.BootID:
		q.saw("boot id", Neither, "this boot of this machine")
		q.f.Machine, q.own = Here, true
	default:
		q.otherBoot()
	}
	return q.f.Machine == Here && q.f.Answer != Dead
}

// otherBoot judges a record of another boot: an earlier one of this machine, or one of a machine that shares our
// disk under our name, whose writes are younger than our boot.
func (q *inquiry) otherBoot() {
	boot := q.t.BootTime()
	before := func(t time.Time) bool { return !t.IsZero() && !boot.IsZero() && t.Before(boot) }
	if q.host && q.id.LocalFS && before(q.id.LastBeat) && before(q.id.ModTime) {
		q.saw("boot id", ForDead, "another boot; heartbeat and file are older than ours, since %s",
			boot.UTC().Format(time.RFC3339))
		q.f.Machine = Here
		q.dead(Reboot)
		return
	}
	why := "heartbeat or file are younger than our boot"
	switch {
	case !q.host:
		why = "the host is not ours"
	case !q.id.LocalFS:
		why = "the file system may be shared"
	case boot.IsZero():
		why = "our boot time is not known"
	case q.id.LastBeat.IsZero() || q.id.ModTime.IsZero():
		why = "heartbeat or file time are not known"
	}
	q.saw("boot id", Neither, "another boot; not proven to be an earlier one of ours: %s", why)
	q.f.Machine = Elsewhere
	q.unknown("another machine")
}

// pidInRange keeps 0 and what would turn negative away from kill, which takes them for process groups.
func (q *inquiry) pidInRange() bool {
	switch {
	case q.id.PID == 0 && q.id.ZeroUnknown:
		q.skip("pid", "0 names no process")
		q.unknown("the record names no process")
	case q.id.PID == 0 || q.id.PID > maxPID:
		q.saw("pid", ForDead, "%d can be no process", q.id.PID)
		q.dead(Gone)
	default:
		return true
	}
	return false
}

// process judges a record of this machine.
func (q *inquiry) process() {
	q.ticks = ticksCount(q.id, q.self, q.own)
	if !q.own {
		q.id.PIDNS, q.id.PidfdIno, q.id.TimeNS = 0, 0, 0
	}
	q.namespace()
	here, m := q.underPid()
	if m == same {
		q.skip("pidfd", "the start is enough")
		// A start in whole seconds may be shared: before an exited process is taken for the holder, a living one
		// in a sandbox must be ruled out.
		if at, found := q.byInnerPid(here, m); found && !at.exited() {
			here = at
		}
		q.condition(here)
		return
	}
	if at, found := q.byPidfd(); found {
		q.skip("inner pid", "the pidfd is enough")
		q.condition(at)
		return
	}
	if at, found := q.byInnerPid(here, m); found {
		q.condition(at)
		return
	}
	provable, why := q.absence()
	switch {
	case !here.exists:
		q.gone(provable, why)
	case m == different, q.reaped && q.self.InitialNS && q.id.PIDNS != 0 && provable:
		if !provable {
			q.unknown(why)
			return
		}
		q.dead(Recycled)
	case here.seen && here.exited():
		// Whoever had the pid is gone: this process, or one before it.
		if !provable {
			q.unknown(why)
			return
		}
		q.condition(here)
	default:
		q.f.ClockStep, q.f.Legacy = m == stepped, m != stepped
		q.speaks("pid", ForAlive)
		q.condition(here)
	}
}

func (q *inquiry) gone(provable bool, why string) {
	if !provable {
		q.unknown(why)
		return
	}
	q.speaks("pid", ForDead)
	q.dead(Gone)
}

func (q *inquiry) namespace() {
	const name = "pid namespace"
	ours, we := "our own", "we are not in the initial one"
	if q.self.InitialNS {
		ours, we = "our own, the initial one", "we are in the initial one"
	}
	switch {
	case q.id.PIDNS == 0:
		q.skip(name, "not recorded for this boot; "+we)
	case q.self.PIDNS == 0:
		q.foreign = true
		q.skip(name, "our own cannot be read")
	case q.id.PIDNS == q.self.PIDNS:
		q.saw(name, Neither, ours)
	default:
		q.foreign = true
		q.saw(name, Neither, "another one than ours")
	}
}

// match says how a process compares with the recorded holder.
type match uint8

const (
	incomparable match = iota // no start is recorded, or none can be read
	same                      // proven to be the holder
	different                 // proven not to be the holder
	stepped                   // another start time, yet older than the last renewal: the clock may have moved it
)

// underPid compares the process that has the recorded pid here, if the record's pids are ours.
func (q *inquiry) underPid() (sight, match) {
	if q.foreign {
		q.skip("pid", "its number is of another pid namespace")
		q.skip("start", "its number is of another pid namespace")
		return sight{}, incomparable
	}
	s := q.recorded()
	switch {
	case !s.exists:
		q.saw("pid", Neither, "no such process here")
		q.skip("start", "no such process here")
		return s, incomparable
	case !s.seen:
		q.f.Occupant = s.Process
		q.saw("pid", Neither, "exists, but is hidden from us")
		q.skip("start", "the process is hidden from us")
		return s, incomparable
	}
	q.f.Occupant = s.Process
	if s.Thread {
		q.saw("pid", ForDead, "only a thread of another process")
		q.skip("start", "no process has the pid")
		return s, different
	}
	q.saw("pid", Neither, "process %q is here", s.Name)
	return s, q.compareStart("start", s.Look)
}

// compareStart compares the start of a process with the recorded one, and tells.
func (q *inquiry) compareStart(name string, l Look) match {
	why := "not recorded"
	if q.id.StartTicks != nil && !q.ticks {
		why = "recorded by the clock of another time namespace"
	}
	if q.ticks && l.HasStart {
		switch {
		case l.Start == *q.id.StartTicks:
			q.saw(name, ForAlive, "as recorded, %d", l.Start)
			return same
		case q.sameClock(l):
			q.saw(name, ForDead, "%d, recorded is %d", l.Start, *q.id.StartTicks)
			return different
		}
		why = "the process lives in another time namespace"
	} else if q.ticks {
		why = "cannot be read"
	}
	if q.id.StartUnix == 0 || l.Started.IsZero() {
		q.skip(name, why)
		q.heartbeat(l, Neither)
		return incomparable
	}
	started := uint64(max(0, l.Started.Unix()))
	if within(started, q.id.StartUnix, startTolerance) {
		q.saw(name, ForAlive, "as recorded, %d s", q.id.StartUnix)
		return same
	}
	q.saw(name, Neither, "%d s, recorded is %d s", started, q.id.StartUnix)
	if q.younger(l) {
		q.heartbeat(l, ForDead)
		return different
	}
	q.heartbeat(l, ForAlive)
	return stepped
}

// heartbeat tells whether the process is younger than the last heartbeat.
func (q *inquiry) heartbeat(l Look, speaks Speaks) {
	switch {
	case l.Started.IsZero() || q.id.LastBeat.IsZero():
		q.alone = q.alone || q.id.LastBeat.IsZero()
		q.skip("heartbeat", "its time or that of the process is not known")
	case q.younger(l):
		q.saw("heartbeat", speaks, "the process started %s after it", rough(l.Started.Sub(q.id.LastBeat)))
	default:
		q.saw("heartbeat", speaks, "the process was there before it")
	}
}

// younger reports whether the process started after the last heartbeat, of which the time is known, and notes for which
// other heartbeats the same would have been found.
func (q *inquiry) younger(l Look) bool {
	if q.id.LastBeat.IsZero() || l.Started.After(q.id.LastBeat) {
		q.alone = true
		return !q.id.LastBeat.IsZero()
	}
	if l.Started.After(q.since) {
		q.since = l.Started
	}
	return false
}

func rough(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.Round(10 * time.Millisecond).String()
}

// sameClock says whether the recorded ticks and those that we read of the process count from the same moment. Ticks
// are shown by the reader's time namespace and were recorded by the holder's.
func (q *inquiry) sameClock(l Look) bool {
	if q.id.TimeNS != 0 || q.self.TimeNS == 0 {
		return true // recorded in our time namespace; or the kernel has none
	}
	_, timeNS := q.t.src.Namespaces(l.PID)
	if timeNS == 0 {
		// Other users' cannot be read. A zombie's neither, though its other threads may run in any.
		return q.self.TimeNS == initialTimeNS && (!l.Zombie || l.LiveThreads == 0)
	}
	return timeNS == q.self.TimeNS
}

// byPidfd looks for the holder by the inode of its pidfd, which no other process gets before the next boot.
func (q *inquiry) byPidfd() (sight, bool) {
	const name = "pidfd"
	if q.id.PidfdIno == 0 {
		q.skip(name, "not recorded for this boot")
		return sight{}, false
	}
	for range 3 {
		pid, err := q.t.src.Pidfd(q.id.PidfdIno)
		if errors.Is(err, ErrReaped) {
			q.reaped = true
			speaks := Neither
			if q.self.InitialNS && q.id.PIDNS != 0 && !q.foreign {
				speaks = ForDead
			}
			q.saw(name, speaks, "%v", err)
			return sight{}, false
		}
		if err != nil {
			q.skip(name, err.Error())
			return sight{}, false
		}
		s := lookAt(q.t.src, pid)
		// The pid may have gone to another process before the look.
		if again, err := q.t.src.Pidfd(q.id.PidfdIno); err == nil && again == pid && s.exists {
			q.saw(name, ForAlive, "process %d", pid)
			return s, true
		}
	}
	q.skip(name, "the process comes and goes")
	return sight{}, false
}

// byInnerPid looks for a holder that recorded its pid and start inside a nested pid namespace. Only the initial
// namespace sees them all.
func (q *inquiry) byInnerPid(here sight, m match) (sight, bool) {
	const name = "inner pid"
	start := q.ticks || q.id.StartUnix != 0
	mortal := !here.exists || m == different || here.seen && here.exited()
	switch {
	case m == same && !mortal:
		q.skip(name, "the start is enough")
		return sight{}, false
	case !q.self.InitialNS:
		q.skip(name, "only the initial pid namespace sees all others")
		return sight{}, false
	case q.id.PIDNS != 0 && !q.foreign:
		q.skip(name, "recorded in our own pid namespace")
		return sight{}, false
	case !start && (q.foreign || !mortal):
		q.skip(name, "no start to recognise it by")
		return sight{}, false
	case start && m == incomparable && !mortal:
		q.skip(name, "a process has the pid, and its start cannot be compared")
		return sight{}, false
	}
	view := q.t.nested()
	q.missing = view.missing
	var holder *sight
	checks := len(q.f.Checks)
	for _, pid := range view.byInner[int(q.id.PID)] {
		s := q.t.look(pid)
		if !s.exists || s.seen && s.Thread {
			continue
		}
		if ns, _ := q.t.src.Namespaces(pid); q.foreign && ns != 0 && ns != q.id.PIDNS {
			continue
		}
		m := incomparable
		if s.seen {
			m = q.compareStart(name, s.Look)
			q.f.Checks = q.f.Checks[:checks]
		}
		switch m {
		case same:
			if holder == nil || holder.exited() {
				holder = &s
			}
		case incomparable, stepped:
			q.doubt = true
		case different:
		}
	}
	switch {
	case holder != nil && (!holder.exited() || !q.doubt):
		q.saw(name, ForAlive, "process %d has pid %d in its own pid namespace, and the recorded start",
			holder.PID, q.id.PID)
		return *holder, true
	case q.doubt:
		q.saw(name, Neither, "a process has this pid in another pid namespace; whether it is the holder cannot be told")
	case q.missing != "":
		q.skip(name, q.missing)
	default:
		q.saw(name, Neither, "no process of another pid namespace matches")
	}
	return sight{}, false
}

// absence says whether the holder would be seen if it ran; if not, why.
func (q *inquiry) absence() (provable bool, why string) {
	switch {
	case !q.host:
		return false, "the same boot under another host name"
	case q.foreign:
		return false, "another pid namespace"
	case q.id.PIDNS != 0:
		return true, ""
	case !q.self.InitialNS:
		return false, "the holder may live outside our pid namespace"
	case q.missing != "":
		return false, q.missing
	case q.doubt:
		return false, "a process in another pid namespace may be the holder"
	default:
		return true, ""
	}
}

// condition judges how a process stands that is, or must be taken for, the holder.
func (q *inquiry) condition(s sight) {
	const name = "state"
	q.f.PID = s.PID
	q.f.Answer = Alive
	if !s.seen {
		q.skip(name, "the process is hidden from us")
		return
	}
	if s.Zombie {
		switch {
		case s.LiveThreads == 0:
			q.zombie(s)
			return
		case s.LiveThreads < 0:
			q.f.Legacy, q.f.ClockStep = false, false
			q.skip(name, "its main thread has exited, the others cannot be seen")
			q.unknown("the threads of an exited process cannot be seen")
			return
		}
	}
	q.f.Condition = s.Condition
	switch s.Condition {
	case Stopped:
		q.saw(name, ForAlive, "stopped by a signal")
		return
	case Traced:
		q.saw(name, ForAlive, "stopped by a debugger")
		return
	case Frozen:
		q.saw(name, ForAlive, "frozen")
		return
	case Running:
	}
	if !q.id.Brief && q.t.frozen(s.PID) {
		// The freezer is asked by pid: believe it only if that is still the same process.
		if again, err := q.t.src.Look(s.PID); err == nil && again.Start == s.Start {
			q.f.Condition = Frozen
			q.saw(name, ForAlive, "frozen with its cgroup")
			return
		}
	}
	if s.Zombie {
		q.saw(name, ForAlive, "its main thread has exited, %d others run", s.LiveThreads)
		return
	}
	q.saw(name, ForAlive, "not stopped")
}

func (q *inquiry) zombie(s sight) {
	q.f.Legacy, q.f.ClockStep = false, false
	q.f.Parent = Process{PID: s.Parent}
	if s.Parent > 0 {
		if p := q.t.look(s.Parent); p.seen {
			q.f.Parent = p.Process
		}
	}
	q.saw("state", ForDead, "exited, not reaped by process %d, %q", s.Parent, q.f.Parent.Name)
	q.dead(Zombie)
}

// ticksCount says whether the recorded ticks count from the same moment as ours.
func ticksCount(id Identity, self Self, own bool) bool {
	return id.StartTicks != nil && (id.TimeNS == 0 || own && id.TimeNS == self.TimeNS)
}

// normalHost is a host name as it is compared; empty when it names nothing.
func normalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(host)), ".")
	if host == "unknown-host" {
		return ""
	}
	return host
}

func sameHost(recorded, ours string) bool {
	host := normalHost(recorded)
	return host != "" && host == normalHost(ours)
}

func within(a, b, distance uint64) bool { return max(a, b)-min(a, b) <= distance }
