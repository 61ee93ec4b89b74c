package proc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
)

func TestIsSelfOnMadeUpMachines(t *testing.T) {
	me := func() proc.Identity {
		id := ours()
		id.PID, id.StartTicks, id.PidfdIno = 10, new(uint64(600_000)), 90
		return id
	}
	for name, c := range map[string]struct {
		change func(m *proctest.Machine, id *proc.Identity)
		want   bool
	}{
		"everything fits":             {func(*proctest.Machine, *proc.Identity) {}, true},
		"renamed host":                {func(m *proctest.Machine, _ *proc.Identity) { m.Host = "new" }, true},
		"another pid":                 {func(_ *proctest.Machine, id *proc.Identity) { id.PID++ }, false},
		"another boot":                {func(_ *proctest.Machine, id *proc.Identity) { id.BootID = "boot-0" }, false},
		"our boot id cannot be read":  {func(m *proctest.Machine, _ *proc.Identity) { m.BootID = "" }, false},
		"another start":               {func(_ *proctest.Machine, id *proc.Identity) { id.StartTicks = new(uint64(1)) }, false},
		"another pid namespace":       {func(_ *proctest.Machine, id *proc.Identity) { id.PIDNS = sandboxNS }, false},
		"another pidfd":               {func(_ *proctest.Machine, id *proc.Identity) { id.PidfdIno = 91 }, false},
		"another time namespace":      {func(_ *proctest.Machine, id *proc.Identity) { id.TimeNS = 5 }, false},
		"no pid of our own":           {func(m *proctest.Machine, id *proc.Identity) { m.PID = 0; id.PID = 0 }, false},
		"host and ticks, no boot id":  {func(_ *proctest.Machine, id *proc.Identity) { id.BootID, id.TimeNS = "", 0 }, true},
		"ticks of another host":       {func(_ *proctest.Machine, id *proc.Identity) { id.BootID, id.Host = "", "other" }, false},
		"neither start nor boot id":   {func(_ *proctest.Machine, id *proc.Identity) { id.BootID, id.StartTicks = "", nil }, false},
		"boot id but no start":        {func(_ *proctest.Machine, id *proc.Identity) { id.StartTicks = nil; id.LastBeat = time.Time{} }, true},
		"boot id, beat older than us": {func(_ *proctest.Machine, id *proc.Identity) { id.StartTicks = nil; id.LastBeat = bootAt }, false},
		"start in seconds": {func(_ *proctest.Machine, id *proc.Identity) {
			id.StartTicks, id.StartUnix = nil, uint64(bootAt.Unix())+6001
		}, true},
		"another start in seconds": {func(_ *proctest.Machine, id *proc.Identity) {
			id.StartTicks, id.StartUnix = nil, uint64(bootAt.Unix())+6003
		}, false},
	} {
		m, id := machine(), me()
		c.change(&m, &id)
		if got := proctest.Table(m).IsSelf(id); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
		if got := proctest.Table(m).Batch().IsSelf(id); got != c.want {
			t.Errorf("%s, in a batch: got %v", name, got)
		}
	}
}

func TestDescribeOnMadeUpMachines(t *testing.T) {
	m := machine()
	m.Procs[1].Details = proc.Details{Command: "agent --serve", User: "ann"}
	m.Procs = append(m.Procs, proctest.Proc{PID: 5, Hidden: true}, proctest.Proc{PID: 11, Parent: holderPID})
	table := proctest.Table(m)
	d, err := table.Describe(11)
	if err != nil || len(d.Parents) != 2 || d.Parents[0].PID != holderPID || d.Parents[1].PID != 10 {
		t.Errorf("got %+v, %v", d, err)
	}
	if d, err = table.Describe(holderPID); err != nil || d.Name != "agent" || d.User != "ann" || d.Started.IsZero() {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err = table.Describe(5); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("hidden: got %v", err)
	}
	if _, err = table.Describe(6); !errors.Is(err, proc.ErrNoProcess) {
		t.Errorf("nobody: got %v", err)
	}
}

func TestFlocksAndWritersOnMadeUpMachines(t *testing.T) {
	file, other := proctest.File{Dev: 7, Ino: 70}, proctest.File{Dev: 8, Ino: 70}
	m := machine()
	m.Procs[1].Holds = []proctest.File{file}
	m.Procs[1].Condition = proc.Frozen
	m.Procs = append(m.Procs,
		proctest.Proc{PID: 20, Waits: []proctest.File{file}, Writes: []proctest.File{file, file}, Condition: proc.Stopped},
		proctest.Proc{PID: 15, Waits: []proctest.File{file}},
		proctest.Proc{PID: 21, Holds: []proctest.File{other}, Waits: []proctest.File{other}, Writes: []proctest.File{other}})
	name := func(holders []proc.FlockHolder) string {
		var s []string
		for _, h := range holders {
			s = append(s, fmt.Sprintf("%d stopped=%v waiting=%v", h.PID, h.Stopped, h.Waiting))
		}
		return strings.Join(s, ", ")
	}
	all := "4242 stopped=true waiting=false, 15 stopped=false waiting=true, 20 stopped=true waiting=true"
	for what, c := range map[string]struct {
		change   func(m *proctest.Machine)
		holders  string
		writers  int
		complete bool
	}{
		"everything is seen":                              {func(*proctest.Machine) {}, all, 1, true},
		"descriptors are denied: the kernel's list tells": {func(m *proctest.Machine) { m.DeniesFDs = true }, all, 0, false},
		"inside a pid namespace":                          {func(m *proctest.Machine) { m.Initial = false }, all, 1, false},
		"processes are hidden":                            {func(m *proctest.Machine) { m.HidesOthers = true }, all, 1, false},
		"no /proc":                                        {func(m *proctest.Machine) { m.NoProc = true }, "", 0, false},
		"the taker is hidden": {
			func(m *proctest.Machine) { m.Procs[1].Hidden = true },
			"15 stopped=false waiting=true, 20 stopped=true waiting=true", 1, false,
		},
	} {
		m := m
		m.Procs = slices.Clone(m.Procs)
		c.change(&m)
		table := proctest.Table(m)
		holders, complete := table.FlockHolders(file.Dev, file.Ino)
		if name(holders) != c.holders || complete != c.complete {
			t.Errorf("%s: got %s, complete %v", what, name(holders), complete)
		}
		writers, complete := table.Batch().Writers(file.Dev, file.Ino)
		if len(writers) != c.writers || c.writers == 1 && writers[0] != 20 {
			t.Errorf("%s: writers %v, complete %v", what, writers, complete)
		}
	}
}

func TestWorldChanges(t *testing.T) {
	w := proctest.NewWorld(machine())
	table := w.Table()
	if f := table.Judge(aftLock()); f.Answer != proc.Alive {
		t.Errorf("got %+v", f)
	}
	w.Change(func(m *proctest.Machine) { m.Procs[1].Condition = proc.Stopped })
	if f := table.Judge(aftLock()); f.Condition != proc.Stopped {
		t.Errorf("got %+v", f)
	}
	w.Kill(holderPID)
	if f := table.Judge(aftLock()); f.Cause != proc.Gone {
		t.Errorf("got %+v", f)
	}
	if got := table.BootTime(); !got.Equal(bootAt) {
		t.Errorf("got %v", got)
	}
}

// counting counts what a table asks its source.
type counting struct {
	proc.Source
	mu            sync.Mutex
	looks         map[int]int
	nested, files int
}

func (c *counting) Look(pid int) (proc.Look, error) {
	c.mu.Lock()
	c.looks[pid]++
	c.mu.Unlock()
	return c.Source.Look(pid)
}

func (c *counting) Nested() (map[int][]int, string) {
	c.mu.Lock()
	c.nested++
	c.mu.Unlock()
	return c.Source.Nested()
}

func (c *counting) OpenFiles() ([]proc.OpenFile, []int, bool) {
	c.mu.Lock()
	c.files++
	c.mu.Unlock()
	return c.Source.OpenFiles()
}

func TestBatchAsksOnce(t *testing.T) {
	src := &counting{Source: proc.SourceOf(proctest.Table(machine())), looks: map[int]int{}}
	batch := proc.NewTable(src).Batch()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				live, dead := aftLock(), aftLock()
				dead.PID = 4243
				if f := batch.Judge(live); f.Answer != proc.Alive {
					t.Errorf("got %+v", f)
				}
				if f := batch.Judge(dead); f.Answer != proc.Dead {
					t.Errorf("got %+v", f)
				}
				batch.Writers(1, 2)
			}
		})
	}
	wg.Wait()
	if src.looks[holderPID] != 1 || src.looks[4243] != 1 || src.nested != 1 || src.files != 1 {
		t.Errorf("looked %v times at pids, searched %d times, listed files %d times", src.looks, src.nested, src.files)
	}
}

func TestLiveHolderNeedsNoSearch(t *testing.T) {
	src := &counting{Source: proc.SourceOf(proctest.Table(machine())), looks: map[int]int{}}
	for _, id := range []proc.Identity{aftLock(), aftOld(), agentMux(), ours()} {
		if f := proc.NewTable(src).Judge(id); f.Answer != proc.Alive {
			t.Errorf("got %+v", f)
		}
	}
	if src.nested != 0 {
		t.Errorf("searched all processes %d times", src.nested)
	}
}
