package proc_test

import (
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
)

func TestNobodyHasThePID(t *testing.T) {
	gone := func(m *proctest.Machine, _ *proc.Identity) { kill(m) }
	for _, s := range []situation{
		{name: "lock", record: aftLock, change: gone, answer: proc.Dead, cause: proc.Gone, machine: proc.Here},
		{name: "lease", record: agentMux, change: gone, answer: proc.Dead, cause: proc.Gone, machine: proc.Here},
		{name: "no start recorded", record: aftOld, change: gone, answer: proc.Dead, cause: proc.Gone, machine: proc.Here},
		{name: "our namespace recorded", record: ours, change: gone, answer: proc.Dead, cause: proc.Gone, machine: proc.Here},
		{
			name: "our namespace recorded, we are inside it, processes are hidden", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) {
				inside(m)
				id.PIDNS, m.HidesOthers = sandboxNS, true
			},
			answer: proc.Dead, cause: proc.Gone, machine: proc.Here,
		},
		{
			name: "our namespace recorded, no /proc to look at others", record: ours,
			change: func(m *proctest.Machine, _ *proc.Identity) { kill(m); m.NoProc = true },
			answer: proc.Dead, cause: proc.Gone, machine: proc.Here,
		},
		{
			name: "another namespace recorded", record: ours,
			change:  func(m *proctest.Machine, id *proc.Identity) { kill(m); id.PIDNS = sandboxNS },
			machine: proc.Here, why: "another pid namespace",
		},
		{
			name: "our own namespace cannot be read", record: ours,
			change:  func(m *proctest.Machine, _ *proc.Identity) { kill(m); m.PIDNS, m.Initial = 0, false },
			machine: proc.Here, why: "another pid namespace",
		},
		{
			name: "a namespace recorded without a boot id does not count", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) { kill(m); id.BootID, id.PIDNS = "", sandboxNS },
			answer: proc.Dead, cause: proc.Gone, machine: proc.Here,
		},
		{
			name: "seen from inside a pid namespace", record: aftLock,
			change:  func(m *proctest.Machine, _ *proc.Identity) { inside(m) },
			machine: proc.Here, why: "outside our pid namespace",
		},
		{
			name: "container re-created: same boot, another host name", record: aftLock,
			change:  func(m *proctest.Machine, id *proc.Identity) { kill(m); id.Host = "0a1b2c3d4e5f" },
			machine: proc.Here, why: "another host name",
		},
		{
			name: "container re-created, its namespace is ours", record: ours,
			change:  func(m *proctest.Machine, id *proc.Identity) { kill(m); id.Host = "0a1b2c3d4e5f" },
			machine: proc.Here, why: "another host name",
		},
		{
			name: "our boot, no host name", record: aftLock,
			change:  func(m *proctest.Machine, id *proc.Identity) { kill(m); id.Host = "" },
			machine: proc.Here, why: "another host name",
		},
		{
			name: "no start recorded, a sandbox has a process of that pid", record: aftOld,
			change:  func(m *proctest.Machine, _ *proc.Identity) { sandbox(m) },
			machine: proc.Here, why: "may be the holder",
		},
		{
			name: "a sandbox has another process of that pid", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { sandbox(m); m.Procs[1].Start++ },
			answer: proc.Dead, cause: proc.Gone, machine: proc.Here,
		},
		{
			name: "a sandbox has a process of that pid in another time namespace", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				sandbox(m)
				m.Procs[1].Start, m.Procs[1].TimeNS = 9, 55
			},
			machine: proc.Here, why: "may be the holder",
		},
		{
			name: "lease, a sandbox has a process of that pid, younger than the renewal", record: agentMux,
			change: func(m *proctest.Machine, _ *proc.Identity) { sandbox(m); m.Procs[1].Start = 600_001 },
			answer: proc.Dead, cause: proc.Gone, machine: proc.Here,
		},
		{
			name: "lease, a sandbox has a process of that pid whose start a clock step may have moved", record: agentMux,
			change:  func(m *proctest.Machine, id *proc.Identity) { sandbox(m); id.StartUnix -= 3600 },
			machine: proc.Here, why: "may be the holder",
		},
		{
			name: "processes are hidden", record: aftLock,
			change:  func(m *proctest.Machine, _ *proc.Identity) { kill(m); m.HidesOthers = true },
			machine: proc.Here, why: "hidden",
		},
		{
			name: "no /proc", record: aftLock,
			change:  func(m *proctest.Machine, _ *proc.Identity) { kill(m); m.NoProc = true },
			machine: proc.Here, why: "/proc",
		},
	} {
		t.Run(s.name, s.run)
	}
}

func TestAnotherProcessHasThePID(t *testing.T) {
	other := func(m *proctest.Machine, _ *proc.Identity) { recycle(m) }
	thread := func(m *proctest.Machine, _ *proc.Identity) { recycle(m); m.Procs[1].Thread = true }
	legacy := func(f proc.Finding) bool { return f.Legacy && !f.ClockStep }
	for _, s := range []situation{
		{
			name: "other ticks", record: aftLock, change: other, answer: proc.Dead, cause: proc.Recycled, machine: proc.Here,
			also: func(f proc.Finding) bool { return f.Occupant.Name == "other" },
		},
		{name: "other ticks, ours", record: ours, change: other, answer: proc.Dead, cause: proc.Recycled, machine: proc.Here},
		{
			name: "other ticks, same boot under another host name", record: aftLock,
			change:  func(m *proctest.Machine, id *proc.Identity) { recycle(m); id.Host = "0a1b2c3d4e5f" },
			machine: proc.Here, why: "another host name",
		},
		{
			name: "other ticks, seen from inside a pid namespace", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				recycle(m)
				m.Initial, m.PIDNS = false, sandboxNS
			},
			machine: proc.Here, why: "outside our pid namespace",
		},
		{
			name: "other ticks, processes are hidden", record: aftLock,
			change:  func(m *proctest.Machine, _ *proc.Identity) { recycle(m); m.HidesOthers = true },
			machine: proc.Here, why: "hidden",
		},
		{
			name: "other ticks, the process lives in another time namespace", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { m.Procs[1].Start, m.Procs[1].TimeNS = 9, 55 },
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "other ticks, we live in another time namespace", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				m.Procs[1].Start, m.Procs[1].TimeNS, m.TimeNS = 9, initialTimeNS, 55
			},
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "other ticks by our clock, the process lives in another time namespace", record: ours,
			change: func(m *proctest.Machine, _ *proc.Identity) { recycle(m); m.Procs[1].TimeNS = 55 },
			answer: proc.Dead, cause: proc.Recycled, machine: proc.Here,
		},
		{
			name: "other ticks, its time namespace cannot be read", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { recycle(m); m.Procs[1].NoNS = true },
			answer: proc.Dead, cause: proc.Recycled, machine: proc.Here,
		},
		{
			name: "other ticks, its time namespace cannot be read, ours is not the initial one", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { recycle(m); m.Procs[1].NoNS, m.TimeNS = true, 55 },
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "other ticks, its main thread has exited and with it its time namespace", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				recycle(m)
				m.Procs[1].NoNS, m.Procs[1].Zombie, m.Procs[1].LiveThreads = true, true, 1
			},
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "lease, three seconds off, started after the renewal", record: agentMux,
			change: func(_ *proctest.Machine, id *proc.Identity) {
				id.StartUnix += 3
				id.LastBeat = bootAt.Add(4000 * time.Second)
			},
			answer: proc.Dead, cause: proc.Recycled, machine: proc.Here,
		},
		{
			name: "a process of the very pid and start in another sandbox is not the holder", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) {
				sandbox(m)
				id.PIDNS, id.PidfdIno = sandboxNS+1, 0
			},
			machine: proc.Here, why: "another pid namespace",
		},
		{
			name: "ticks of a record with a time namespace but no boot id do not count", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) { id.BootID = ""; id.StartTicks = new(uint64(9)) },
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "a process of the very pid and start in another pid namespace is not the holder", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) {
				id.PIDNS, id.PidfdIno = sandboxNS, 0
				m.Initial, m.PIDNS = false, 111
			},
			machine: proc.Here, why: "another pid namespace",
		},
		{name: "a thread's", record: aftLock, change: thread, answer: proc.Dead, cause: proc.Recycled, machine: proc.Here},
		{name: "a thread's, lease", record: agentMux, change: thread, answer: proc.Dead, cause: proc.Recycled, machine: proc.Here},
		{
			name: "a thread's, no start recorded", record: aftOld, change: thread, answer: proc.Dead, cause: proc.Recycled,
			machine: proc.Here,
		},
		{
			name: "a thread's that happens to have the recorded start", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { m.Procs[1].Thread = true },
			answer: proc.Dead, cause: proc.Recycled, machine: proc.Here,
		},
		{
			name: "a thread's, no start recorded, a sandbox has a process of that pid", record: aftOld,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				sandbox(m)
				m.Procs = append(m.Procs, proctest.Proc{PID: holderPID, Thread: true})
			},
			machine: proc.Here, why: "may be the holder",
		},
		{
			name: "a thread's, seen from inside a pid namespace", record: aftOld,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				m.Procs[1].Thread, m.Initial, m.PIDNS = true, false, sandboxNS
			},
			machine: proc.Here, why: "outside our pid namespace",
		},
		{
			name: "lease, started after the renewal", record: agentMux, change: other, answer: proc.Dead, cause: proc.Recycled,
			machine: proc.Here,
		},
		{
			name: "lease, the clock was stepped by an hour", record: agentMux,
			change: func(_ *proctest.Machine, id *proc.Identity) { id.StartUnix -= 3600 },
			answer: proc.Alive, machine: proc.Here, pid: holderPID,
			also: func(f proc.Finding) bool { return f.ClockStep && !f.Legacy },
		},
		{
			name: "lease, another start, the renewal is not known", record: agentMux,
			change: func(_ *proctest.Machine, id *proc.Identity) { id.StartUnix -= 3600; id.LastBeat = time.Time{} },
			answer: proc.Alive, machine: proc.Here, pid: holderPID,
			also: func(f proc.Finding) bool { return f.ClockStep },
		},
		{
			name: "no start recorded", record: aftOld,
			answer: proc.Alive, machine: proc.Here, pid: holderPID,
			also: func(f proc.Finding) bool { return legacy(f) && saw(f, "heartbeat", "was there before it") },
		},
		{
			name: "no start recorded, the process is younger than the heartbeat: no proof", record: aftOld, change: other,
			answer: proc.Alive, machine: proc.Here, pid: holderPID,
			also: func(f proc.Finding) bool { return legacy(f) && saw(f, "heartbeat", "started 10ms after it") },
		},
		{
			name: "the start cannot be read", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { m.Procs[1].NoStart = true },
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "hidden, kill says that it exists", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { m.HidesOthers, m.Procs[1].Hidden = true, true },
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "no /proc, kill says that it exists", record: agentMux,
			change: func(m *proctest.Machine, _ *proc.Identity) { m.NoProc = true },
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "hidden, its pidfd is reaped", record: ours,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				m.HidesOthers, m.Procs[1].Hidden, m.Procs[1].PidfdIno = true, true, 72
			},
			answer: proc.Dead, cause: proc.Recycled, machine: proc.Here,
		},
		{
			name: "hidden, its pidfd is not found from inside a pid namespace", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) {
				m.HidesOthers, m.Procs[1].Hidden, m.Procs[1].PidfdIno = true, true, 72
				m.Initial, m.PIDNS, id.PIDNS = false, sandboxNS, sandboxNS
			},
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
		{
			name: "hidden, a pidfd recorded without a boot id does not count", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) {
				m.HidesOthers, m.Procs[1].Hidden, m.Procs[1].PidfdIno = true, true, 72
				id.BootID = ""
			},
			answer: proc.Alive, machine: proc.Here, pid: holderPID, also: legacy,
		},
	} {
		t.Run(s.name, s.run)
	}
}
