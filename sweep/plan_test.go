package sweep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// machine is a made-up machine called "here" with the process 4242 on it.
func machine(mod ...func(*proctest.Machine)) *proc.Table {
	m := proctest.Machine{
		Host: "here", BootID: "boot", BootAt: time.Now().Add(-time.Hour), PIDNS: 1, Initial: true,
		Procs: []proctest.Proc{{PID: 4242, Start: 777, Name: "node"}},
	}
	for _, f := range mod {
		f(&m)
	}
	return proctest.Table(m)
}

func recordOf(pid uint32, host string) []byte {
	at := uint64(time.Now().Add(-time.Minute).UnixMilli())
	r := record.Lock{PID: pid, Hostname: host, ProcessStartTime: new(uint64(777)), CreatedAtMS: at, HeartbeatAtMS: at, WriterEpoch: "w"}
	return r.Encode()
}

func putOld(t *testing.T, path string, data []byte, age time.Duration) {
	t.Helper()
	put(t, path, false, string(data))
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestPlanTellsWhatARunWouldDoAndWhy(t *testing.T) {
	const week = 7 * 24 * time.Hour
	root := t.TempDir()
	cases := []struct {
		path   string
		data   []byte
		age    time.Duration
		remove bool
		why    string
	}{
		{"index/a/.dead.lock.reclaim", recordOf(999, "here"), 0, true, "dead of pid 999"},
		{"index/a/.live.lock.reclaim", recordOf(4242, "here"), week, false, "alive of pid 4242"},
		{"index/a/.other.lock.reclaim", recordOf(999, "web02"), week, false, "unknown of pid 999 on web02"},
		{"index/a/.young.lock.reclaim", []byte("{"), 30 * time.Second, false, "honoured for"},
		{"index/a/.old.lease.reclaim", []byte("{"), 61 * time.Second, true, "over a minute old"},
		{"index/a/.text.lock.reclaim", []byte("no record at all"), week, true, "malformed"},
		{"index/a/.big.lock.reclaim", make([]byte, record.MaxSize+1), week, false, "blocks until a person acts"},
		{"index/b/.dead.lock.tmp.999.1.0", recordOf(999, "here"), 0, true, "pid 999, which is gone"},
		{"index/b/.live.lock.tmp.999.1.0", recordOf(4242, "here"), week, false, "In use by pid 4242"},
		{"index/b/.other.lock.tmp.999.1.0", recordOf(999, "web02"), week, false, "cannot tell"},
		{"index/b/.named.lock.tmp.999.1.0", nil, 0, true, "pid 999, which is gone"},
		{"index/b/.named.lock.tmp.4242.1.0", nil, week, false, "In use by pid 4242"},
		{"index/b/.young.lock.tmp.0.1.0", []byte("{"), 23 * time.Hour, false, "may still be written"},
		{"index/b/.old.lock.tmp.0.1.0", []byte("{"), 25 * time.Hour, true, "open in no process"},
		{"index/b/.big.lock.tmp.0.1.0", make([]byte, record.MaxSize+1), week, false, "no file that can be read"},
		{"index/b/.large.lock.tmp.999.1.0", make([]byte, record.MaxSize+1), week, false, "no file that can be read"},
		{"index/b/.Cargo.lock.tmp.old", []byte("an editor's"), week, false, "somebody else's"},
		{"index/b/.dead.lock.tmp.copy", recordOf(999, "here"), week, false, "somebody else's"},
		{"leases/.registry-tmp-Qw3xYz.json", []byte("{"), 25 * time.Hour, true, "open in no process"},
	}
	for _, c := range cases {
		putOld(t, filepath.Join(root, c.path), c.data, c.age)
	}
	putOld(t, filepath.Join(root, "index/a/.notes.reclaim"), []byte("an editor's"), week)
	putOld(t, filepath.Join(root, "index/a/dead.lock"), recordOf(999, "here"), week)

	s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Temps: true}
	plan, err := s.Plan(t.Context())
	if err != nil || len(plan.Errors) != 0 {
		t.Fatalf("%v, %v", err, plan.Errors)
	}
	steps := map[string]Step{}
	for _, step := range plan.Steps {
		steps[relative(t, root, []string{step.Path})[0]] = step
		if (step.Token == nil) == (step.Temp == nil) || step.LockOf != LockOf(step.Path) {
			t.Errorf("step %+v", step)
		}
	}
	for _, c := range cases {
		step, ok := steps[c.path]
		switch {
		case !ok:
			t.Errorf("%s is not in the plan", c.path)
		case step.Remove != c.remove || !strings.Contains(strings.ToLower(step.Why), strings.ToLower(c.why)):
			t.Errorf("%s: remove = %v, %q; want %v, %q", c.path, step.Remove, step.Why, c.remove, c.why)
		}
	}
	if len(plan.Steps) != len(cases) {
		t.Errorf("%d steps, want %d", len(plan.Steps), len(cases))
	}
	for _, c := range cases {
		if _, err := os.Lstat(filepath.Join(root, c.path)); err != nil {
			t.Errorf("a plan removed something: %v", err)
		}
	}

	s.Temps = false
	plan, err = s.Plan(t.Context())
	if err != nil || len(plan.Steps) != 7 || plan.Layout.Kind != AFT|AgentMux {
		t.Errorf("without temps: %d steps, %v, %v", len(plan.Steps), plan.Layout.Kind, err)
	}
}

func TestTempThatSomebodyMayHaveOpenIsLeft(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "index/a/.old.lock.tmp.0.1.0")
	putOld(t, path, []byte("{"), 25*time.Hour)
	file, err := record.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	writes := func(m *proctest.Machine) {
		m.Procs[0].Writes = []proctest.File{{Dev: file.Stat.Dev, Ino: file.Stat.Ino}}
	}
	denies := func(m *proctest.Machine) { m.DeniesFDs = true }
	for why, table := range map[string]*proc.Table{"pid 4242 has it open": machine(writes), "cannot be seen": machine(denies)} {
		s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: table}, Temps: true}
		plan, err := s.Plan(t.Context())
		if err != nil || len(plan.Steps) != 1 || plan.Steps[0].Remove || !strings.Contains(plan.Steps[0].Why, why) {
			t.Errorf("want %q: %+v, %v", why, plan.Steps, err)
		}
	}
}

func TestPlanOfNothing(t *testing.T) {
	plan, err := (&Sweeper{Root: filepath.Join(t.TempDir(), "none")}).Plan(t.Context())
	if err != nil || plan.Layout.Kind != Missing || len(plan.Steps) != 0 {
		t.Errorf("of a missing root: %+v, %v", plan, err)
	}
	plan, err = (&Sweeper{Root: tree(t, "index/")}).Plan(t.Context())
	if err != nil || len(plan.Steps)+len(plan.Errors) != 0 {
		t.Errorf("of an empty storage: %+v, %v", plan, err)
	}
	_, err = (&Sweeper{Root: strings.Repeat("x", 300)}).Plan(t.Context())
	if place := (*PlaceError)(nil); !errors.As(err, &place) {
		t.Errorf("of a root that the system refuses: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Sweeper{Root: tree(t, "index/.a.lock.reclaim")}).Plan(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a finished context: %v", err)
	}
}

func TestPlanCountsOnWhatItsLockerHasSeen(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "index/.a.lock.reclaim")
	putOld(t, path, []byte("{"), -time.Hour)
	l := &fslock.Locker{Table: machine()}
	l.InspectToken(path)
	plan, err := (&Sweeper{Root: root, Locker: l}).Plan(t.Context())
	if err != nil || len(plan.Steps) != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	if f := plan.Steps[0].Token.Facts; !f.Still.Before(f.Look) || plan.Steps[0].Token.Token.State != verdict.Malformed {
		t.Errorf("the look before does not count: %+v", f.Seen)
	}
}
