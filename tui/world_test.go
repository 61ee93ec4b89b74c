package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// roleVariable makes the test binary a screen instead of a test; see terminal_unix_test.go.
const roleVariable = "HOLDFAST_TUI_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	time.Local = time.UTC // pictures show local times
	os.Exit(m.Run())
}

// noon is the moment of the made-up snapshots.
var noon = time.Date(2026, 3, 14, 14, 2, 29, 0, time.UTC)

const (
	home     = "/home/ann"
	leases   = home + "/.agentmux/shared/agents/registry/leases"
	registry = home + "/.agentmux/shared"
	storage  = home + "/.local/share/cortexkit/aft"
)

// world makes snapshots.
type world struct {
	at      time.Time
	seq     uint64
	entries []*watch.Entry
}

func alive(pid int) proc.Finding {
	return proc.Finding{Answer: proc.Alive, Machine: proc.Here, PID: pid, Checks: []proc.Check{
		{Name: "host", Saw: "vm, this machine"},
		{Name: "pid", Saw: fmt.Sprintf("%d exists", pid), Speaks: proc.ForAlive},
		{Name: "start", Saw: "as recorded", Speaks: proc.ForAlive},
		{Name: "pidfd", Skipped: "not recorded"},
	}}
}

func dead(cause proc.Cause) proc.Finding {
	return proc.Finding{Answer: proc.Dead, Cause: cause, Machine: proc.Here, Checks: []proc.Check{
		{Name: "host", Saw: "vm, this machine"},
		{Name: "pid", Saw: "no such process", Speaks: proc.ForDead},
	}}
}

func elsewhere() proc.Finding {
	return proc.Finding{Machine: proc.Elsewhere, Why: "another machine", Checks: []proc.Check{
		{Name: "host", Saw: "web02, not this machine"},
		{Name: "pid", Skipped: "another machine's processes cannot be seen"},
	}}
}

// add puts an entry into the world, judged at its time.
func (w *world) add(e watch.Entry) {
	e.Verdict = e.Subject.Judge(w.at)
	w.entries = append(w.entries, &e)
}

func (w *world) lease(id string, age time.Duration, found proc.Finding, change func(*verdict.LeaseFacts)) {
	beat := w.at.Add(-age)
	f := &verdict.LeaseFacts{
		Seen: verdict.Seen{
			Path: leases + "/" + id + ".lease.json", Look: w.at, Proc: found, Beat: beat, Host: "vm",
			File: record.Stat{ModTime: beat, Size: 300},
		},
		ID: id, TTL: verdict.LeaseTTL, Interval: verdict.LeaseInterval,
		Counter: verdict.Counter{Path: leases + "/" + id + ".epoch", Value: 6},
		Record: &record.Lease{
			InstanceID: id, OwnerBootID: "boot-" + id, BlockID: "block-1", PID: 48213, Hostname: "vm", Epoch: 6,
			AcquiredAtMS: w.at.Add(-4 * time.Minute).UnixMilli(), RenewedAtMS: beat.UnixMilli(),
			Channel: "stable", Version: "0.57", ClaimID: "claim-" + id,
		},
	}
	if change != nil {
		change(f)
	}
	e := watch.Entry{Kind: watch.Lease, Root: registry, Path: f.Path, ID: id, Subject: f, Epoch: 6, Raw: []byte(`{"instance_id":"` + id + `"}` + "\n")}
	if f.Missing {
		f.Record, e.Raw = nil, nil
	}
	if f.Problem != nil {
		f.Record = nil
	}
	w.add(e)
}

func (w *world) lock(place, name string, age time.Duration, found proc.Finding, change func(*verdict.LockFacts)) {
	beat := w.at.Add(-age)
	f := &verdict.LockFacts{
		Seen: verdict.Seen{
			Path: storage + "/" + place, Look: w.at, Proc: found, Beat: beat, Host: "vm",
			File: record.Stat{ModTime: beat, Size: 200},
		},
		Record: &record.Lock{
			PID: 48377, Hostname: "vm", CreatedAtMS: uint64(w.at.Add(-2 * time.Hour).UnixMilli()),
			HeartbeatAtMS: uint64(beat.UnixMilli()), WriterEpoch: "writer-" + name,
		},
	}
	if change != nil {
		change(f)
	}
	e := watch.Entry{Kind: watch.Lock, Root: storage, Path: f.Path, Name: name, Subject: f, Raw: []byte(`{"pid":48377}` + "\n")}
	if f.Problem != nil {
		f.Record = nil
	}
	if f.Token != nil {
		token := f.Token.Token(w.at)
		e.Token = &token
		w.add(watch.Entry{Kind: watch.Token, Root: storage, Path: f.Token.Path, LockOf: f.Path, Subject: f.Token})
	}
	w.add(e)
}

func (w *world) snapshot() *watch.Snapshot {
	w.seq++
	return &watch.Snapshot{
		Seq: w.seq, Time: w.at, Observer: proc.Self{PID: 1, Host: "vm", UID: 1000, PIDNS: 4026531836},
		Roots: []watch.Root{
			{Path: registry, Kind: "agentmux", ChosenBy: "default", FS: "ext4", Local: true, Watch: "inotify"},
			{Path: storage, Kind: "aft", ChosenBy: "$XDG_DATA_HOME", FS: "ext4", Local: true, Watch: "inotify"},
		},
		Entries: w.entries,
	}
}

func malformed(path string, offset int64, torn bool, detail string) *record.Error {
	return &record.Error{Op: "parse", Path: path, Problem: record.Malformed, Offset: offset, Torn: torn, Detail: detail}
}

// everything is a snapshot with each state, of leases and of locks, that there is.
func everything(at time.Time) *watch.Snapshot {
	w := &world{at: at}
	w.lease("researcher", 2*time.Second, alive(48213), nil)
	w.lease("planner", 9*time.Second, alive(48213), nil)
	w.lease("reviewer", 61*time.Second, alive(46120), func(f *verdict.LeaseFacts) { f.Record.PID = 46120 })
	w.lease("sleeper", 4*time.Second, alive(48377), func(f *verdict.LeaseFacts) {
		f.Proc.Condition, f.Record.PID = proc.Stopped, 48377
	})
	w.lease("far", 5*time.Second, elsewhere(), func(f *verdict.LeaseFacts) { f.Record.Hostname, f.Record.PID = "web02", 1442 })
	w.lease("boxed", 6*time.Second, proc.Finding{Machine: proc.Here, Why: "another pid namespace", Checks: []proc.Check{
		{Name: "pid namespace", Saw: "another than this one"}, {Name: "pid", Skipped: "it counts in another namespace"},
	}}, func(f *verdict.LeaseFacts) { f.Record.PID = 9120 })
	w.lease("crashed", 3*time.Second, dead(proc.Gone), func(f *verdict.LeaseFacts) { f.Record.PID = 9121 })
	w.lease("torn", 6*time.Second, proc.Finding{}, func(f *verdict.LeaseFacts) {
		f.Problem = malformed(f.Path, 15, true, "it ends within a string")
	})
	w.lease("relay", 0, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Missing, f.Counter.Value = true, 7 })
	w.lease("uncounted", 0, proc.Finding{}, func(f *verdict.LeaseFacts) {
		f.Missing = true
		f.Counter = verdict.Counter{Path: f.Counter.Path, Problem: malformed(f.Counter.Path, 0, false, "no number")}
	})
	w.lease("odd \x1b[2J name 日本語", 2*time.Second, alive(48213), nil)

	w.lock("inspect/8eb3d10c88aa02f1/writer.lease", "web-app", 2*time.Hour, proc.Finding{
		Answer: proc.Dead, Cause: proc.Recycled, Machine: proc.Here,
		Occupant: proc.Process{PID: 362, Name: "node", Started: at.Add(-6 * time.Hour)},
		Checks: []proc.Check{
			{Name: "boot id", Saw: "the same boot"},
			{Name: "pid", Saw: "362 exists"},
			{Name: "start", Saw: "start ticks 9121, not 5530", Speaks: proc.ForDead},
		},
	}, func(f *verdict.LockFacts) {
		f.Record.PID = 362
		f.Token = &verdict.TokenFacts{
			Seen: verdict.Seen{Path: storage + "/inspect/8eb3d10c88aa02f1/.writer.lease.reclaim", Look: at, Proc: elsewhere(), Beat: at.Add(-2 * time.Hour)},
			Record: &record.Lock{
				PID: 377, Hostname: "old-host", CreatedAtMS: uint64(at.Add(-2 * time.Hour).UnixMilli()), WriterEpoch: "reclaim-377-1",
			},
		}
	})
	w.lock("index/8eb3d10c88aa02f1/cache.lock", "web-app", 4*time.Minute, alive(48377), func(f *verdict.LockFacts) { f.Proc.Condition = proc.Stopped })
	w.lock("callgraph/11c0ffee11c0ffee/writer.lease", "docs", 5*time.Second, elsewhere(), func(f *verdict.LockFacts) {
		f.Record.Hostname, f.Record.PID = "web02", 1442
	})
	w.lock("index/11c0ffee11c0ffee/cache.lock", "docs", 2*time.Second, alive(48377), nil)
	w.lock("symbols/77aa77aa77aa77aa/cache.lock", "", 10*time.Second, proc.Finding{}, func(f *verdict.LockFacts) {
		f.Problem = &record.Error{Op: "open", Path: f.Path, Problem: record.NotRegular, Detail: "a symlink"}
	})
	return w.snapshot()
}

// screenFor is a screen that does nothing but hold what it is told to.
func screenFor() *Screen {
	s := &Screen{
		Watch: func(ctx context.Context, _ func(*watch.Snapshot)) error { <-ctx.Done(); return nil },
		Stores: func(dir string) *lease.Store {
			if dir != leases {
				return nil
			}
			return &lease.Store{Dir: dir}
		},
		Locker: &fslock.Locker{}, Audit: &audit.Log{Path: home + "/audit.jsonl"},
		Home: home, Out: discard{},
		Claimant: lease.Claimant{Owner: "screen", Block: "test", Channel: "holdfast", Version: "test"},
	}
	s.tests.describe = func(_ context.Context, pid int) (proc.Details, error) {
		return proc.Details{Process: proc.Process{PID: pid, Name: "node"}, Command: "node server.js", User: "ann", Status: "sleeping"}, nil
	}
	return s
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// desk is a model with the means to type at it.
type desk struct {
	*model
	t   testing.TB
	did []command // all commands, oldest first
}

func sit(tb testing.TB, s *Screen, w, h int) *desk {
	tb.Helper()
	d := &desk{model: newHarness(s).model, t: tb}
	d.holds.ctx, d.holds.cancel = context.WithCancel(tb.Context())
	tb.Cleanup(d.holds.cancel)
	d.tell(resized{w, h})
	return d
}

// tell gives the model a message at its own time.
func (d *desk) tell(message any) []command {
	at := d.clock
	if at.IsZero() {
		at = noon
	}
	return d.tellAt(message, at)
}

func (d *desk) tellAt(message any, at time.Time) []command {
	commands := d.update(message, at)
	d.did = append(d.did, commands...)
	return commands
}

// press types keys, one at a time.
func (d *desk) press(names ...string) (last []command) {
	for _, name := range names {
		last = d.tell(typed(name))
	}
	return last
}

// later lets time pass without a message but the tick.
func (d *desk) later(by time.Duration) { d.tellAt(tick{}, d.clock.Add(by)) }

// see delivers a snapshot as the inbox would.
func (d *desk) see(s *watch.Snapshot) {
	var changes []watch.Change
	if d.fresh != nil {
		changes = watch.Diff(d.fresh, s)
	}
	d.tellAt(delivery{snapshot: s, changes: changes, held: holdings{d.heldAt, d.held}}, s.Time)
}

// holding tells the model that the screen holds these leases, and locks by their paths.
func (d *desk) holding(ids ...string) {
	var list []held
	for _, id := range ids {
		h := held{ref: ref{watch.Lease, leases + "/" + id + ".lease.json"}, name: id, epoch: 7, nonce: "claim-" + id}
		if strings.HasPrefix(id, storage) {
			h = held{ref: ref{watch.Lock, id}, name: id, nonce: "writer"}
		}
		list = append(list, h)
	}
	d.tell(delivery{held: holdings{d.heldAt + 1, list}})
}

// typed is a key as the harness hands it on.
func typed(name string) keyPress {
	k := keyPress{name: name, single: true}
	if len([]rune(name)) == 1 {
		k.text = name
	}
	return k
}

// types types text, one key at a time.
func (d *desk) types(text string) {
	for _, r := range text {
		d.press(string(r))
	}
}

func (d *desk) choose(id string) {
	d.t.Helper()
	for i, r := range d.rows {
		if r.entry.ID == id || r.entry.Path == id {
			d.goTo(i)
			return
		}
	}
	d.t.Fatalf("no row of %q", id)
}

// screenText is what can be read, its gaps one space wide.
func (d *desk) screenText() string { return oneSpaced(ansi.Strip(d.view())) }

func oneSpaced(s string) string { return strings.Join(strings.Fields(s), " ") }

// finish runs the commands that work beside the screen and tells the model what came of them.
func (d *desk) finish(commands []command) {
	for _, c := range commands {
		if c.run != nil {
			d.tell(c.run(context.Background()))
		}
	}
}

func quits(commands []command) bool {
	for _, c := range commands {
		if c.quit {
			return true
		}
	}
	return false
}

var errMadeUp = errors.New("made up")
