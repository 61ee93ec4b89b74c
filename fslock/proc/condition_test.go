package proc_test

import (
	"testing"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
)

func TestConditionOfTheHolder(t *testing.T) {
	stands := func(c proc.Condition) func(*proctest.Machine, *proc.Identity) {
		return func(m *proctest.Machine, _ *proc.Identity) { m.Procs[1].Condition = c }
	}
	is := func(c proc.Condition) func(proc.Finding) bool {
		return func(f proc.Finding) bool { return f.Condition == c }
	}
	zombie := func(m *proctest.Machine, _ *proc.Identity) { m.Procs[1].Zombie = true }
	parent := func(f proc.Finding) bool { return f.Parent.PID == 10 && f.Parent.Name == "holdfast" }
	for _, s := range []situation{
		{name: "stopped", record: aftLock, change: stands(proc.Stopped), answer: proc.Alive, also: is(proc.Stopped)},
		{name: "stopped, no start recorded", record: aftOld, change: stands(proc.Stopped), answer: proc.Alive, also: is(proc.Stopped)},
		{name: "traced", record: aftLock, change: stands(proc.Traced), answer: proc.Alive, also: is(proc.Traced)},
		{name: "frozen", record: aftLock, change: stands(proc.Frozen), answer: proc.Alive, also: is(proc.Frozen)},
		{name: "zombie", record: aftLock, change: zombie, answer: proc.Dead, cause: proc.Zombie, also: parent},
		{name: "zombie, lease", record: agentMux, change: zombie, answer: proc.Dead, cause: proc.Zombie, also: parent},
		{name: "zombie, no start recorded", record: aftOld, change: zombie, answer: proc.Dead, cause: proc.Zombie, also: parent},
		{
			name: "zombie, found by its pidfd from another namespace", record: ours,
			change: func(m *proctest.Machine, id *proc.Identity) { zombie(m, id); id.PIDNS, m.Initial = sandboxNS, false },
			answer: proc.Dead, cause: proc.Zombie, also: parent,
		},
		{
			name: "zombie whose parent is not seen", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) { zombie(m, id); m.Procs[1].Parent = 0 },
			answer: proc.Dead, cause: proc.Zombie, also: func(f proc.Finding) bool { return f.Parent == proc.Process{} },
		},
		{
			name: "exited main thread, others run", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) { zombie(m, id); m.Procs[1].LiveThreads = 2 },
			answer: proc.Alive, also: is(proc.Running),
		},
		{
			name: "exited main thread, others are stopped", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) {
				zombie(m, id)
				m.Procs[1].LiveThreads, m.Procs[1].Condition = 2, proc.Stopped
			},
			answer: proc.Alive, also: is(proc.Stopped),
		},
		{
			name: "exited main thread, others cannot be seen", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) { zombie(m, id); m.Procs[1].LiveThreads = -1 },
			why:    "threads",
		},
	} {
		s.machine, s.pid = proc.Here, holderPID
		t.Run(s.name, s.run)
	}
	for _, s := range []situation{
		{
			name: "a zombie that is not the holder", record: aftLock,
			change: func(m *proctest.Machine, id *proc.Identity) { recycle(m); zombie(m, id) },
			answer: proc.Dead, cause: proc.Recycled,
		},
		{
			name: "a zombie that may not be the holder, seen from inside a pid namespace", record: aftOld,
			change: func(m *proctest.Machine, id *proc.Identity) {
				zombie(m, id)
				m.Initial, m.PIDNS = false, sandboxNS
			},
			why: "outside our pid namespace",
		},
		{
			name: "a zombie that may not be the holder, a sandbox has a process of that pid", record: aftOld,
			change: func(m *proctest.Machine, _ *proc.Identity) {
				sandbox(m)
				m.Procs = append(m.Procs, proctest.Proc{PID: holderPID, Start: 9, Zombie: true})
			},
			why: "may be the holder",
		},
		{
			name: "a zombie of the recorded second, while a sandbox has a living one of that pid and second", record: agentMux,
			change: func(m *proctest.Machine, id *proc.Identity) {
				sandbox(m)
				m.Procs = append(m.Procs, proctest.Proc{PID: holderPID, Start: holderStart + 100, Zombie: true})
			},
			answer: proc.Alive, pid: 777,
		},
		{
			name: "two sandboxes have that pid and second, one is a zombie", record: agentMux,
			change: func(m *proctest.Machine, id *proc.Identity) {
				sandbox(m)
				other := m.Procs[1]
				other.PID, other.NSpid, other.Zombie = 778, []int{778, holderPID}, true
				m.Procs = append([]proctest.Proc{other}, m.Procs...)
			},
			answer: proc.Alive, pid: 777,
		},
		{
			name: "a zombie in a sandbox, and a process that cannot be told from the holder in another", record: agentMux,
			change: func(m *proctest.Machine, id *proc.Identity) {
				sandbox(m)
				other := m.Procs[1]
				other.PID, other.NSpid, other.Start = 778, []int{778, holderPID}, 5
				m.Procs[1].Zombie = true
				m.Procs = append(m.Procs, other)
			},
			why: "may be the holder",
		},
		{
			name: "a stopped process that is not the holder", record: aftLock,
			change: func(m *proctest.Machine, _ *proc.Identity) { recycle(m); m.Procs[1].Condition = proc.Stopped },
			answer: proc.Dead, cause: proc.Recycled, also: is(proc.Running),
		},
	} {
		s.machine = proc.Here
		t.Run(s.name, s.run)
	}
}

// diesWhenAsked lets the holder die, and another process take its pid, while the freezer is asked.
type diesWhenAsked struct {
	proc.Source
	world *proctest.World
}

func (d diesWhenAsked) Frozen(pid int) bool {
	d.world.Change(func(m *proctest.Machine) {
		recycle(m)
		m.Procs[1].Condition = proc.Frozen
	})
	return d.Source.Frozen(pid)
}

func TestHolderDiesWhileTheFreezerIsAsked(t *testing.T) {
	w := proctest.NewWorld(machine())
	f := proc.NewTable(diesWhenAsked{proc.SourceOf(w.Table()), w}).Judge(aftLock())
	if f.Answer != proc.Alive || f.Condition != proc.Running {
		t.Errorf("the freezer of another process counts: got %+v", f)
	}
}

// comesAndGoes answers for a pidfd with a pid that has gone to another process since.
type comesAndGoes struct {
	proc.Source
	world *proctest.World
}

func (c comesAndGoes) Pidfd(ino uint64) (int, error) {
	pid, err := c.Source.Pidfd(ino)
	if err == nil {
		c.world.Change(recycle)
	}
	return pid, err
}

func TestHolderDiesBetweenPidfdAndLook(t *testing.T) {
	m := machine()
	m.Procs[1].NoStart = true
	w := proctest.NewWorld(m)
	f := proc.NewTable(comesAndGoes{proc.SourceOf(w.Table()), w}).Judge(ours())
	if f.Answer != proc.Dead || f.Cause != proc.Recycled {
		t.Errorf("another process is taken for the holder: got %+v", f)
	}
}
