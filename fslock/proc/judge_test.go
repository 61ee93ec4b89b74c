package proc_test

import (
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
)

const (
	initialPIDNS  = 0xEFFFFFFC
	initialTimeNS = 0xEFFFFFFA
	sandboxNS     = 4026532178

	holderPID   = 4242
	holderStart = 500_000 // ticks: 5,000 s after boot
	holderFD    = 71
)

var (
	bootAt = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	beat   = bootAt.Add(6000 * time.Second)
)

// machine is a machine in its initial namespaces with two processes: ourselves and the holder.
func machine() proctest.Machine {
	return proctest.Machine{
		Host: "vm", BootID: "boot-1", BootAt: bootAt, PIDNS: initialPIDNS, Initial: true, TimeNS: initialTimeNS, PID: 10,
		Procs: []proctest.Proc{
			{PID: 10, Start: 600_000, Name: "holdfast", PidfdIno: 90},
			{PID: holderPID, Start: holderStart, Name: "agent", Parent: 10, PidfdIno: holderFD},
		},
	}
}

// aftLock is the record of a lock as AFT writes it, aftOld one of a build that knew no starts, agentMux that of a
// lease, ours one with our fields.
func aftLock() proc.Identity {
	return proc.Identity{
		PID: holderPID, Host: "vm", BootID: "boot-1", StartTicks: new(uint64(holderStart)),
		LastBeat: beat, ModTime: beat, LocalFS: true,
	}
}

func aftOld() proc.Identity {
	return proc.Identity{PID: holderPID, Host: "vm", LastBeat: beat, ModTime: beat, LocalFS: true}
}

func agentMux() proc.Identity {
	return proc.Identity{
		PID: holderPID, Host: "vm", StartUnix: uint64(bootAt.Unix()) + holderStart/100,
		LastBeat: beat, ModTime: beat, LocalFS: true, ZeroUnknown: true,
	}
}

func ours() proc.Identity {
	id := aftLock()
	id.PIDNS, id.PidfdIno, id.TimeNS = initialPIDNS, holderFD, initialTimeNS
	return id
}

type situation struct {
	name    string
	record  func() proc.Identity
	change  func(m *proctest.Machine, id *proc.Identity)
	answer  proc.Liveness
	cause   proc.Cause
	machine proc.Machine
	pid     int
	why     string // part of Why
	also    func(f proc.Finding) bool
}

func (s situation) run(t *testing.T) {
	m, id := machine(), s.record()
	if s.change != nil {
		s.change(&m, &id)
	}
	for name, table := range map[string]*proc.Table{
		"alone": proctest.Table(m), "in a batch": proctest.Table(m).Batch(),
	} {
		f := table.Judge(id)
		if f.Answer != s.answer || f.Cause != s.cause || f.Machine != s.machine || f.PID != s.pid ||
			!strings.Contains(f.Why, s.why) || (f.Why != "") != (f.Answer == proc.Unknown) || s.also != nil && !s.also(f) {
			t.Errorf("%s: got %+v", name, f)
		}
		checkEvidence(t, f)
	}
}

// checkEvidence demands of every check that it says what it saw or why it was skipped, and of an answer that no
// check speaks against it.
func checkEvidence(t *testing.T, f proc.Finding) {
	t.Helper()
	if len(f.Checks) == 0 {
		t.Error("no evidence")
	}
	seen := map[string]bool{}
	for _, c := range f.Checks {
		if c.Name == "" || (c.Saw == "") == (c.Skipped == "") || c.Skipped != "" && c.Speaks != proc.Neither || seen[c.Name] {
			t.Errorf("bad check %+v in %+v", c, f.Checks)
		}
		seen[c.Name] = true
	}
	speaks := func(s proc.Speaks) bool {
		for _, c := range f.Checks {
			if c.Speaks == s {
				return true
			}
		}
		return false
	}
	if f.Answer == proc.Dead && !speaks(proc.ForDead) || f.Answer == proc.Alive && !speaks(proc.ForAlive) {
		t.Errorf("nothing speaks for %s: %+v", f.Answer, f.Checks)
	}
}

func saw(f proc.Finding, check, part string) bool {
	for _, c := range f.Checks {
		if c.Name == check && strings.Contains(c.Saw, part) && c.Speaks == proc.Neither {
			return true
		}
	}
	return false
}

func kill(m *proctest.Machine) { m.Procs = m.Procs[:1] }

// recycle gives the holder's pid to another process that started after the last beat.
func recycle(m *proctest.Machine) {
	m.Procs[1].Start, m.Procs[1].PidfdIno, m.Procs[1].Name = 600_001, 72, "other"
}

// sandbox moves the holder to a pid namespace below ours, where it has the recorded pid, and here another one.
func sandbox(m *proctest.Machine) {
	m.Procs[1].NSpid = []int{777, holderPID}
	m.Procs[1].PID, m.Procs[1].PIDNS = 777, sandboxNS
}

// inside moves us to a pid namespace of our own, where the holder is not seen.
func inside(m *proctest.Machine) {
	m.Initial, m.PIDNS = false, sandboxNS
	kill(m)
}

func TestMachineOfARecord(t *testing.T) {
	for _, s := range []situation{
		{
			name: "our boot, our host", record: aftLock,
			answer: proc.Alive, machine: proc.Here, pid: holderPID,
		},
		{
			name: "renamed host, holder runs", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { m.Host = "new-name" },
			answer: proc.Alive, machine: proc.Here, pid: holderPID,
		},
		{
			name: "host differs in case, spaces and a trailing dot", record: aftOld,
			change: func(m *proctest.Machine, id *proc.Identity) { m.Host, id.Host = "VM.example", " vm.Example. " },
			answer: proc.Alive, machine: proc.Here, pid: holderPID,
		},
		{
			name: "another host, no boot id", record: aftOld,
			change:  func(_ *proctest.Machine, id *proc.Identity) { id.Host = "other" },
			machine: proc.Elsewhere, why: "another machine",
		},
		{
			name: "no host, no boot id", record: aftOld,
			change:  func(_ *proctest.Machine, id *proc.Identity) { id.Host = " " },
			machine: proc.Unnamed, why: "names no machine",
		},
		{
			name: "unknown-host is no name, not even where gethostname fails too", record: aftOld,
			change: func(m *proctest.Machine, id *proc.Identity) {
				m.Host, id.Host = "unknown-host", "unknown-host"
				kill(m)
			},
			machine: proc.Unnamed, why: "names no machine",
		},
		{
			name: "our own host name is not known", record: aftOld,
			change:  func(m *proctest.Machine, _ *proc.Identity) { m.Host = ""; kill(m) },
			machine: proc.Unnamed, why: "our own host name",
		},
		{
			name: "reboot", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) {
				id.BootID, id.LastBeat, id.ModTime = "boot-0", bootAt.Add(-time.Hour), bootAt.Add(-time.Hour)
			},
			answer: proc.Dead, cause: proc.Reboot, machine: proc.Here,
		},
		{
			name: "guest: heartbeat younger than our boot", record: aftLock,
			change: func(_ *proctest.Machine, id *proc.Identity) {
				id.BootID, id.ModTime = "boot-0", bootAt.Add(-time.Hour)
			},
			machine: proc.Elsewhere, why: "another machine",
		},
		{
			name: "guest: file younger than our boot", record: aftLock,
			change: func(_ *proctest.Machine, id *proc.Identity) {
				id.BootID, id.LastBeat = "boot-0", bootAt.Add(-time.Hour)
			},
			machine: proc.Elsewhere, why: "another machine",
		},
		{
			name: "another boot, times not known", record: aftLock,
			change: func(_ *proctest.Machine, id *proc.Identity) {
				id.BootID, id.LastBeat, id.ModTime = "boot-0", time.Time{}, time.Time{}
			},
			machine: proc.Elsewhere, why: "another machine",
		},
		{
			name: "another boot on a shared file system", record: aftLock,
			change: func(_ *proctest.Machine, id *proc.Identity) {
				id.BootID, id.LastBeat, id.ModTime, id.LocalFS = "boot-0", bootAt.Add(-1), bootAt.Add(-1), false
			},
			machine: proc.Elsewhere, why: "another machine",
		},
		{
			name: "another boot of another host", record: aftLock,
			change: func(_ *proctest.Machine, id *proc.Identity) {
				id.BootID, id.LastBeat, id.ModTime, id.Host = "boot-0", bootAt.Add(-1), bootAt.Add(-1), "other"
			},
			machine: proc.Elsewhere, why: "another machine",
		},
		{
			name: "another boot, our boot time is not known", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) {
				id.BootID, id.LastBeat, id.ModTime, m.BootAt = "boot-0", bootAt.Add(-1), bootAt.Add(-1), time.Time{}
			},
			machine: proc.Elsewhere, why: "another machine",
		},
		{
			name: "our own boot id cannot be read: the host name is not enough", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) {
				m.BootID, id.LastBeat, id.ModTime = "", bootAt.Add(-1), bootAt.Add(-1)
				kill(m)
			},
			machine: proc.Unnamed, why: "boot id cannot be read",
		},
		{
			name: "our own boot id cannot be read, another host is named", record: aftLock,
			change:  func(m *proctest.Machine, id *proc.Identity) { m.BootID, id.Host = "", "other" },
			machine: proc.Elsewhere, why: "boot id cannot be read",
		},
	} {
		t.Run(s.name, s.run)
	}
}

func TestNumbersThatAreNoPID(t *testing.T) {
	set := func(pid uint32) func(*proctest.Machine, *proc.Identity) {
		return func(_ *proctest.Machine, id *proc.Identity) { id.PID = pid }
	}
	for _, s := range []situation{
		{name: "0 in a lock", record: aftLock, change: set(0), answer: proc.Dead, cause: proc.Gone, machine: proc.Here},
		{name: "0 in a lease", record: agentMux, change: set(0), machine: proc.Here, why: "names no process"},
		{name: "-1", record: aftLock, change: set(1<<32 - 1), answer: proc.Dead, cause: proc.Gone, machine: proc.Here},
		{name: "2^31 in a lease", record: agentMux, change: set(1 << 31), answer: proc.Dead, cause: proc.Gone, machine: proc.Here},
		{
			name: "0 of another machine", record: aftOld,
			change:  func(_ *proctest.Machine, id *proc.Identity) { id.PID, id.Host = 0, "other" },
			machine: proc.Elsewhere, why: "another machine",
		},
	} {
		t.Run(s.name, s.run)
	}
}

func TestHolderIsIdentified(t *testing.T) {
	alive := func(s situation) situation {
		s.answer, s.machine = proc.Alive, proc.Here
		if s.pid == 0 {
			s.pid = holderPID
		}
		also := s.also
		s.also = func(f proc.Finding) bool {
			return !f.Legacy && !f.ClockStep && (also == nil || also(f))
		}
		return s
	}
	for _, s := range []situation{
		{name: "by pid and ticks", record: aftLock, also: func(f proc.Finding) bool {
			return f.Occupant.Name == "agent" && f.Occupant.Started.Equal(bootAt.Add(5000*time.Second))
		}},
		{name: "by pid and start in seconds", record: agentMux},
		{name: "by a start two seconds off", record: agentMux, change: func(_ *proctest.Machine, id *proc.Identity) {
			id.StartUnix += 2
		}},
		{name: "with all our fields", record: ours},
		{
			name: "by its pidfd though processes are hidden", record: ours,
			change: func(m *proctest.Machine, _ *proc.Identity) { m.HidesOthers, m.Procs[1].Hidden = true, true },
		},
		{
			name: "by its pidfd in another pid namespace, seen from inside ours", record: ours, pid: 5,
			change: func(m *proctest.Machine, id *proc.Identity) {
				m.Initial, m.PIDNS, id.PIDNS = false, 111, sandboxNS
				m.Procs[1].PID, m.Procs[1].NSpid = 5, []int{5, holderPID}
			},
		},
		{
			name: "in a sandbox, its pid is free here", record: aftLock, pid: 777,
			change: func(m *proctest.Machine, _ *proc.Identity) { sandbox(m) },
			also:   func(f proc.Finding) bool { return f.Occupant.PID == 0 },
		},
		{
			name: "in a sandbox, its pid is another's here", record: aftLock, pid: 777,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				sandbox(m)
				m.Procs = append(m.Procs, proctest.Proc{PID: holderPID, Start: 600_001, Name: "other"})
			},
			also: func(f proc.Finding) bool { return f.Occupant.Name == "other" },
		},
		{
			name: "in a sandbox, its pid is a thread's here", record: aftLock, pid: 777,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				sandbox(m)
				m.Procs = append(m.Procs, proctest.Proc{PID: holderPID, Start: holderStart, Thread: true})
			},
		},
		{
			name: "in a sandbox, a lease, an older process has its pid here", record: agentMux, pid: 777,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				sandbox(m)
				m.Procs = append(m.Procs, proctest.Proc{PID: holderPID, Start: 5, Name: "other"})
			},
		},
		{
			name: "in a container of another host name and our boot", record: aftLock, pid: 777,
			change: func(m *proctest.Machine, id *proc.Identity) { sandbox(m); id.Host = "0a1b2c3d4e5f" },
		},
		{
			name: "in a sandbox whose namespace is recorded, without pidfs", record: ours, pid: 777,
			change: func(m *proctest.Machine, id *proc.Identity) {
				sandbox(m)
				id.PIDNS, m.NoPidfs = sandboxNS, true
			},
		},
		{
			name: "in a sandbox whose namespace cannot be read, without pidfs", record: ours, pid: 777,
			change: func(m *proctest.Machine, id *proc.Identity) {
				sandbox(m)
				id.PIDNS, m.NoPidfs, m.Procs[1].PIDNS = sandboxNS, true, 0
			},
		},
		{
			name: "recorded in our time namespace, whatever its own is", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) { m.Procs[1].TimeNS, id.PidfdIno = 55, 0 },
		},
		{
			name: "by start in seconds, where ticks are of another time namespace", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) {
				id.TimeNS, id.PidfdIno, id.StartTicks = 55, 0, new(uint64(9))
				id.StartUnix = agentMux().StartUnix
			},
		},
	} {
		t.Run(s.name, alive(s).run)
	}
}

// The originals look at the pid alone, where the host name is ours.
func TestWhatTheOriginalsSeeUnderThePID(t *testing.T) {
	seen := proc.Under{Exists: true, Readable: true, StartTicks: holderStart, StartUnix: agentMux().StartUnix}
	for name, c := range map[string]struct {
		record func() proc.Identity
		change func(m *proctest.Machine, id *proc.Identity)
		want   proc.Under
	}{
		"the holder":   {aftLock, func(*proctest.Machine, *proc.Identity) {}, seen},
		"another host": {aftLock, func(_ *proctest.Machine, id *proc.Identity) { id.Host = "other" }, proc.Under{}},
		"another boot": {aftLock, func(_ *proctest.Machine, id *proc.Identity) { id.BootID = "boot-0" }, seen},
		"another pid namespace": {ours, func(_ *proctest.Machine, id *proc.Identity) {
			id.PIDNS, id.PidfdIno = sandboxNS, 0
		}, seen},
		"nobody": {aftLock, func(m *proctest.Machine, _ *proc.Identity) { kill(m) }, proc.Under{}},
		"hidden": {aftLock, func(m *proctest.Machine, _ *proc.Identity) {
			m.HidesOthers, m.Procs[1].Hidden = true, true
		}, proc.Under{Exists: true}},
		"0": {aftLock, func(_ *proctest.Machine, id *proc.Identity) { id.PID = 0 }, proc.Under{}},
	} {
		m, id := machine(), c.record()
		c.change(&m, &id)
		if got := proctest.Table(m).Judge(id).Under; got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWordsAreStable(t *testing.T) {
	for got, want := range map[string]string{
		proc.Unknown.String(): "unknown", proc.Alive.String(): "alive", proc.Dead.String(): "dead",
		proc.Neither.String(): "neither", proc.ForAlive.String(): "alive", proc.ForDead.String(): "dead",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if f := (proc.Finding{}); f.Answer != proc.Unknown || f.Machine != proc.Unnamed {
		t.Errorf("the zero finding is %+v", f)
	}
}
