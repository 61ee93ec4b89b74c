package proc_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
)

// drawMachine makes up a machine with so few numbers that everything collides with everything.
func drawMachine(t *rapid.T) proctest.Machine {
	m := proctest.Machine{
		Host:        rapid.SampledFrom([]string{"vm", "VM.", "other", "unknown-host", ""}).Draw(t, "host"),
		BootID:      rapid.SampledFrom([]string{"b1", "b1", "b2", ""}).Draw(t, "boot"),
		PIDNS:       rapid.SampledFrom([]uint64{1, 1, 2, 0}).Draw(t, "pidns"),
		Initial:     rapid.Bool().Draw(t, "initial"),
		TimeNS:      rapid.SampledFrom([]uint64{initialTimeNS, 1, 0}).Draw(t, "timens"),
		HidesOthers: rapid.Bool().Draw(t, "hides"),
		NoProc:      rapid.IntRange(0, 9).Draw(t, "noproc") == 0,
		NoPidfs:     rapid.Bool().Draw(t, "nopidfs"),
	}
	if rapid.Bool().Draw(t, "boot time known") {
		m.BootAt = bootAt
	}
	for pid := 1; pid <= 4; pid++ {
		if rapid.Bool().Draw(t, "absent") {
			continue
		}
		p := proctest.Proc{
			PID:         pid,
			TimeNS:      rapid.SampledFrom([]uint64{0, 0, 2}).Draw(t, "its timens"),
			PidfdIno:    uint64(rapid.IntRange(0, 3).Draw(t, "pidfd")),
			Start:       uint64(rapid.IntRange(0, 3).Draw(t, "start")) * 500,
			NoStart:     rapid.IntRange(0, 9).Draw(t, "nostart") == 0,
			Thread:      rapid.IntRange(0, 4).Draw(t, "thread") == 0,
			Zombie:      rapid.IntRange(0, 3).Draw(t, "zombie") == 0,
			LiveThreads: rapid.IntRange(-1, 1).Draw(t, "threads"),
			Hidden:      m.HidesOthers && rapid.Bool().Draw(t, "hidden"),
		}
		if rapid.Bool().Draw(t, "nested") {
			p.NSpid = []int{pid, rapid.IntRange(1, 4).Draw(t, "inner")}
			p.PIDNS = rapid.SampledFrom([]uint64{0, 2, 3}).Draw(t, "its pidns")
		}
		m.Procs = append(m.Procs, p)
	}
	return m
}

func drawTime(t *rapid.T, name string) time.Time {
	s := rapid.IntRange(-3, 20).Draw(t, name)
	if s == -3 {
		return time.Time{}
	}
	return bootAt.Add(time.Duration(s) * time.Second)
}

func drawIdentity(t *rapid.T) proc.Identity {
	id := proc.Identity{
		PID:         rapid.SampledFrom([]uint32{1, 2, 3, 4, 5, 0, 1 << 31}).Draw(t, "pid"),
		Host:        rapid.SampledFrom([]string{"vm", "VM", "other", "unknown-host", ""}).Draw(t, "host"),
		BootID:      rapid.SampledFrom([]string{"b1", "b1", "b2", ""}).Draw(t, "boot"),
		PIDNS:       rapid.SampledFrom([]uint64{0, 1, 2}).Draw(t, "pidns"),
		PidfdIno:    uint64(rapid.IntRange(0, 4).Draw(t, "pidfd")),
		TimeNS:      rapid.SampledFrom([]uint64{0, 0, 1, initialTimeNS}).Draw(t, "timens"),
		LastBeat:    drawTime(t, "beat"),
		ModTime:     drawTime(t, "mtime"),
		LocalFS:     rapid.Bool().Draw(t, "local"),
		ZeroUnknown: rapid.Bool().Draw(t, "zero"),
	}
	if rapid.Bool().Draw(t, "ticks") {
		id.StartTicks = new(uint64(rapid.IntRange(0, 3).Draw(t, "start")) * 500)
	}
	if rapid.Bool().Draw(t, "seconds") {
		id.StartUnix = uint64(bootAt.Unix()) + uint64(rapid.IntRange(0, 20).Draw(t, "start s"))
	}
	return id
}

// proofs returns the causes of death that section 3 of the specification allows for what is recorded and there.
func proofs(m proctest.Machine, id proc.Identity) []proc.Cause {
	var causes []proc.Cause
	names := func(s string) string {
		return map[string]string{"vm": "vm", "VM": "vm", "VM.": "vm", "other": "other"}[s]
	}
	sameHost := names(id.Host) != "" && names(id.Host) == names(m.Host)
	sameBoot := id.BootID != "" && id.BootID == m.BootID
	before := func(t time.Time) bool { return !t.IsZero() && t.Before(m.BootAt) }
	if id.BootID != "" && m.BootID != "" && !sameBoot && sameHost && id.LocalFS && before(id.LastBeat) && before(id.ModTime) {
		causes = append(causes, proc.Reboot)
	}
	if !sameBoot && (id.BootID != "" || !sameHost) {
		return causes
	}
	if id.PID == 0 || id.PID == 1<<31 {
		if id.PID != 0 || !id.ZeroUnknown {
			causes = append(causes, proc.Gone)
		}
		return causes
	}
	if !sameBoot && id.TimeNS != 0 || id.TimeNS != 0 && id.TimeNS != m.TimeNS {
		id.StartTicks = nil
	}
	if !sameBoot {
		id.PIDNS, id.PidfdIno = 0, 0
	}
	numbersAreOurs := id.PIDNS == 0 || id.PIDNS == m.PIDNS

	var here *proctest.Proc
	nested := false // somebody in a nested namespace who cannot be told from the holder
	reaped := true
	for _, p := range m.Procs {
		started := bootAt.Add(time.Duration(p.Start) * 10 * time.Millisecond)
		seconds := id.StartUnix != 0 && !m.BootAt.IsZero() && !p.NoStart
		near := seconds && max(uint64(started.Unix()), id.StartUnix)-min(uint64(started.Unix()), id.StartUnix) <= 2
		foreignClock := id.TimeNS == 0 && m.TimeNS != 0 && p.TimeNS != 0 && p.TimeNS != m.TimeNS
		exactly := id.StartTicks != nil && !p.NoStart && p.Start == *id.StartTicks
		// A start proves another process by ticks of one clock, or by having begun after the last renewal.
		another := id.StartTicks != nil && !p.NoStart && !exactly && !foreignClock ||
			(id.StartTicks == nil || !p.NoStart && foreignClock || p.NoStart) &&
				seconds && !near && !id.LastBeat.IsZero() && started.After(id.LastBeat)
		exited := p.Zombie && p.LiveThreads == 0
		byPidfd := id.PidfdIno != 0 && p.PidfdIno == id.PidfdIno
		if byPidfd && !p.Thread {
			reaped = false
		}
		if numbersAreOurs && p.PID == int(id.PID) {
			here = &p
			if exited && !p.Hidden && (exactly || near) && !p.Thread {
				causes = append(causes, proc.Zombie)
			}
		}
		if exited && !p.Hidden && byPidfd && !m.NoPidfs {
			causes = append(causes, proc.Zombie)
		}
		if !p.Hidden && !p.Thread && len(p.NSpid) == 2 && p.NSpid[1] == int(id.PID) && m.Initial {
			if exited && (exactly || near) {
				causes = append(causes, proc.Zombie)
			}
			nested = nested || !another
		}
		if here == &p && numbersAreOurs && !p.Hidden && !m.NoProc && (p.Thread || another) {
			causes = append(causes, "another")
		}
	}

	absent := sameHost && (id.PIDNS != 0 && id.PIDNS == m.PIDNS ||
		id.PIDNS == 0 && m.Initial && !nested && !m.HidesOthers && !m.NoProc)
	another := slices.Contains(causes, "another")
	causes = slices.DeleteFunc(causes, func(c proc.Cause) bool { return c == "another" })
	if absent && numbersAreOurs {
		switch {
		case here == nil:
			causes = append(causes, proc.Gone)
		case another, id.PIDNS != 0 && id.PidfdIno != 0 && reaped && !m.NoPidfs && m.Initial:
			causes = append(causes, proc.Recycled)
		}
		// By pid alone: whoever had it has exited.
		if here != nil && !here.Hidden && !m.NoProc && here.Zombie && here.LiveThreads == 0 {
			causes = append(causes, proc.Zombie)
		}
	}
	return causes
}

func TestDeadNeedsAProof(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, id := drawMachine(t), drawIdentity(t)
		f := proctest.Table(m).Judge(id)
		if f.Answer == proc.Dead && !slices.Contains(proofs(m, id), f.Cause) {
			t.Fatalf("dead (%s) without a proof; proven is %v\n%+v\n%+v", f.Cause, proofs(m, id), f.Checks, id)
		}
		if f.Answer != proc.Dead && f.Cause != "" || (f.Answer == proc.Unknown) != (f.Why != "") || len(f.Checks) == 0 {
			t.Fatalf("inconsistent finding %+v", f)
		}
		if f.Answer == proc.Alive && f.PID == 0 || f.Answer != proc.Alive && (f.Condition != proc.Running || f.Legacy) {
			t.Fatalf("inconsistent finding %+v", f)
		}
		if g := proctest.Table(m).Batch().Judge(id); !reflect.DeepEqual(f, g) {
			t.Fatalf("in a batch %+v, alone %+v", g, f)
		}
	})
}

// Many records name one process, and differ in when it was last heard of.
func TestBatchJudgesEveryBeatAsIfAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, id := drawMachine(t), drawIdentity(t)
		batch := proctest.Table(m).Batch()
		for range 6 {
			other := drawIdentity(t)
			id.LastBeat, id.ModTime, id.LocalFS = other.LastBeat, other.ModTime, other.LocalFS
			id.Brief = rapid.Bool().Draw(t, "brief")
			if f, g := proctest.Table(m).Judge(id), batch.Judge(id); !reflect.DeepEqual(f, g) {
				t.Fatalf("in a batch %+v, alone %+v, of %+v", g, f, id)
			}
		}
	})
}

// world is a machine as nobody sees it: pid namespaces below one another, time namespaces, and processes that each
// record themselves truthfully.
type world struct {
	parent []int    // of each pid namespace; 0 is the initial one, its own parent
	offset []uint64 // of each time namespace, in ticks
	procs  []worldProc
}

type worldProc struct {
	ns, time int
	start    uint64      // by the initial clock
	pids     map[int]int // in its own namespace and all above it
	zombie   bool
	threads  int
}

func (w world) within(ns, outer int) bool {
	for ns != outer {
		if ns == 0 {
			return false
		}
		ns = w.parent[ns]
	}
	return true
}

func drawWorld(t *rapid.T) world {
	w := world{parent: []int{0}, offset: []uint64{0}}
	for range rapid.IntRange(0, 3).Draw(t, "namespaces") {
		w.parent = append(w.parent, rapid.IntRange(0, len(w.parent)-1).Draw(t, "parent"))
	}
	if rapid.Bool().Draw(t, "second clock") {
		w.offset = append(w.offset, 100_000)
	}
	starts := rapid.Permutation([]uint64{0, 1000, 2000, 3000, 4000, 5000, 6000}).Draw(t, "starts")
	next := make([]int, len(w.parent)) // pids are given out in order
	for i := range rapid.IntRange(1, len(starts)).Draw(t, "processes") {
		p := worldProc{
			ns:     rapid.IntRange(0, len(w.parent)-1).Draw(t, "ns"),
			time:   rapid.IntRange(0, len(w.offset)-1).Draw(t, "clock"),
			start:  starts[i], // two of one pid and start cannot be told apart
			pids:   map[int]int{},
			zombie: rapid.IntRange(0, 3).Draw(t, "zombie") == 0,
		}
		if p.zombie {
			p.threads = rapid.IntRange(0, 1).Draw(t, "threads")
		}
		for ns := p.ns; ; ns = w.parent[ns] {
			next[ns] += rapid.IntRange(1, 2).Draw(t, "step")
			p.pids[ns] = next[ns]
			if ns == 0 {
				break
			}
		}
		w.procs = append(w.procs, p)
	}
	return w
}

const worldNS, worldTime = 100, initialTimeNS

// seenFrom is the machine as a process in those namespaces sees it.
func (w world) seenFrom(t *rapid.T, ns, clock int, boot time.Time) proctest.Machine {
	m := proctest.Machine{
		Host: "vm", BootID: "b1", BootAt: boot, PIDNS: worldNS + uint64(ns), Initial: ns == 0,
		TimeNS:      worldTime + uint64(clock),
		HidesOthers: rapid.Bool().Draw(t, "hides"),
		NoProc:      rapid.IntRange(0, 9).Draw(t, "noproc") == 0,
		NoPidfs:     rapid.Bool().Draw(t, "nopidfs"),
	}
	for i, p := range w.procs {
		if !w.within(p.ns, ns) {
			continue
		}
		var nspid []int
		for at := p.ns; ; at = w.parent[at] {
			nspid = append(nspid, p.pids[at])
			if at == ns {
				break
			}
		}
		slices.Reverse(nspid)
		seen := proctest.Proc{
			PID: p.pids[ns], NSpid: nspid, PIDNS: worldNS + uint64(p.ns), TimeNS: worldTime + uint64(p.time),
			PidfdIno: uint64(1000 + i), Start: p.start + w.offset[clock], Zombie: p.zombie, LiveThreads: p.threads,
			Hidden: m.HidesOthers && rapid.Bool().Draw(t, "hidden"),
		}
		if p.ns == ns {
			seen.NSpid = nil
		} else if rapid.Bool().Draw(t, "namespace unreadable") {
			seen.PIDNS = 0
		}
		m.Procs = append(m.Procs, seen)
	}
	// The boot time of /proc/stat is shown by the observer's clock.
	m.BootAt = m.BootAt.Add(-time.Duration(w.offset[clock]) * 10 * time.Millisecond)
	return m
}

// drawRecord is what the process writes of itself: as one of the originals, or as ours.
func (w world) drawRecord(t *rapid.T, i int, boot time.Time) proc.Identity {
	p := w.procs[i]
	id := proc.Identity{PID: uint32(p.pids[p.ns]), Host: "vm", LocalFS: true}
	started := boot.Add(time.Duration(p.start) * 10 * time.Millisecond)
	id.LastBeat = started.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "beat")) * time.Second)
	id.ModTime = id.LastBeat
	kind := rapid.SampledFrom([]string{"lock", "old lock", "lease", "old lease", "ours"}).Draw(t, "kind")
	if kind == "lock" || kind == "ours" {
		id.BootID, id.StartTicks = "b1", new(p.start+w.offset[p.time])
	}
	if kind == "lease" || kind == "ours" {
		id.StartUnix = uint64(boot.Unix()) + p.start/100
	}
	if kind == "ours" {
		id.PIDNS, id.PidfdIno, id.TimeNS = worldNS+uint64(p.ns), uint64(1000+i), worldTime+uint64(p.time)
		if rapid.Bool().Draw(t, "no pidfd") {
			id.PidfdIno = 0
		}
		if rapid.Bool().Draw(t, "no start in seconds") {
			id.StartUnix = 0
		}
	}
	if id.BootID != "" && rapid.Bool().Draw(t, "container's host name") {
		id.Host = "0a1b2c3d4e5f"
	}
	return id
}

// TestTheLivingAreNeverCalledDead lets every process of a made-up world record itself and judges it from every
// place: whatever can be seen from there, who lives is never called dead, and who is called dead does not live.
func TestTheLivingAreNeverCalledDead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		i := rapid.IntRange(0, len(w.procs)-1).Draw(t, "holder")
		holder := w.procs[i]
		id := w.drawRecord(t, i, bootAt)
		// The clock may have been stepped back since, or forward by less than the last renewal is old.
		started := bootAt.Add(time.Duration(holder.start) * 10 * time.Millisecond)
		// Steps of 5, 15, ... seconds bring no process's start to another's, which nobody could tell apart.
		step := time.Duration(rapid.IntRange(-100, 6).Draw(t, "clock step"))*10*time.Second + 5*time.Second
		if step > id.LastBeat.Sub(started) {
			step = 0
		}
		died := rapid.Bool().Draw(t, "died")
		if died {
			w.procs = slices.Delete(w.procs, i, i+1)
		}
		ns := rapid.IntRange(0, len(w.parent)-1).Draw(t, "observer's namespace")
		clock := rapid.IntRange(0, len(w.offset)-1).Draw(t, "observer's clock")
		m := w.seenFrom(t, ns, clock, bootAt.Add(step))
		f := proctest.Table(m).Judge(id)
		lives := !died && (!holder.zombie || holder.threads > 0)
		if lives && f.Answer == proc.Dead {
			t.Fatalf("a living holder is called dead (%s)\nrecord %+v\nholder %+v\nseen as %+v\n%+v", f.Cause, id, holder, m, f.Checks)
		}
		if !died && f.Answer == proc.Alive && !f.Legacy && !f.ClockStep && f.PID != holder.pids[ns] {
			t.Fatalf("holder %d of %+v was taken for %d: %+v", holder.pids[ns], m.Procs, f.PID, f.Checks)
		}
		// From the initial namespace, with everything to be seen, our own records of our namespace leave no doubt.
		if ns == 0 && holder.ns == 0 && id.PIDNS != 0 && id.Host == "vm" && id.TimeNS == m.TimeNS && !m.NoProc &&
			!m.HidesOthers && f.Answer == proc.Unknown {
			t.Fatalf("unknown: %s %+v", f.Why, f.Checks)
		}
	})
}
