package tui

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/sweep"
	"holdfast/watch"
)

func TestEachKeyRefusesWithItsReason(t *testing.T) {
	const lock = storage + "/index/11c0ffee11c0ffee/cache.lock"
	for _, c := range []struct {
		name, key, entry, says string
		screen                 func(*Screen)
		before                 func(*desk)
	}{
		{name: "a lock that is held", key: "A", entry: lock, says: "is held: free when its holder releases it or dies."},
		{name: "a lock elsewhere", key: "A", entry: storage + "/callgraph/11c0ffee11c0ffee/writer.lease", says: "is held: free in 1m 10s at the earliest"},
		{name: "a lease to acquire", key: "A", entry: "crashed", says: "crashed is a lease. C claims it."},
		{name: "a lock to claim", key: "C", entry: lock, says: "is a lock. A acquires it."},
		{name: "a symlink to acquire", key: "A", entry: storage + "/symbols/77aa77aa77aa77aa/cache.lock", says: "till somebody acts: it is blocked by a symlink in its place."},
		{name: "a free lease", key: "B", entry: "relay", says: "relay is free: there is nothing to break."},
		{name: "what blocks is no holder", key: "B", entry: "uncounted", says: "What blocks it is its damaged epoch counter"},
		{name: "a symlink to break", key: "B", entry: storage + "/symbols/77aa77aa77aa77aa/cache.lock", says: "a symlink is in its place, and nothing touches that."},
		{name: "no locker to acquire", key: "A", entry: storage + "/free.lock", says: "was given nothing to change locks with", screen: func(s *Screen) { s.Locker = nil }},
		{name: "no locker to break", key: "B", entry: lock, says: "was given nothing to change locks with", screen: func(s *Screen) { s.Locker = nil }},
		{name: "no locker to sweep", key: "W", entry: lock, says: "was given nothing to change locks with", screen: func(s *Screen) { s.Locker = nil }},
		{name: "no store to break", key: "B", entry: "crashed", says: "not known as one of leases", screen: func(s *Screen) { s.Stores = nil }},
		{name: "a temp", key: "B", entry: storage + "/.free.lock.tmp.1.2.3", says: "W in the litter view (4) sweeps temps", before: func(d *desk) { d.press("4") }},
		{name: "read-only A", key: "A", entry: lock, says: "A acquires, but this screen is read-only (RO)", screen: func(s *Screen) { s.ReadOnly = true }},
		{name: "read-only B", key: "B", entry: lock, says: "B breaks, but this screen is read-only (RO)", screen: func(s *Screen) { s.ReadOnly = true }},
		{name: "read-only W", key: "W", entry: lock, says: "W sweeps, but this screen is read-only (RO)", screen: func(s *Screen) { s.ReadOnly = true }},
		{name: "paused", key: "B", entry: lock, says: "the picture is paused", before: func(d *desk) { d.press("p") }},
		{name: "stale", key: "W", entry: lock, says: "the picture is stale", before: func(d *desk) { d.tell(delivery{ended: true}) }},
		{name: "a stranger's lock", key: "R", entry: lock, says: "belongs to pid 48377 on vm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := screenFor()
			if c.screen != nil {
				c.screen(s)
			}
			d := sit(t, s, 140, 40)
			d.see(withFreeLock(noon))
			if c.before != nil {
				c.before(d)
			}
			d.choose(c.entry)
			d.refuses(c.key, c.says)
		})
	}
}

// withFreeLock is everything, and a free lock with somebody's temp beside it.
func withFreeLock(at time.Time) *watch.Snapshot {
	s := everything(at)
	w := &world{at: at}
	w.lock("free.lock", "", 0, proc.Finding{}, func(f *verdict.LockFacts) { f.Missing, f.Record = true, nil })
	w.entries[0].Raw = nil
	w.add(watch.Entry{Kind: watch.Temp, Root: storage, Path: storage + "/.free.lock.tmp.1.2.3", LockOf: storage + "/free.lock", Subject: &verdict.TempFacts{
		Seen: verdict.Seen{Path: storage + "/.free.lock.tmp.1.2.3", Look: at, Proc: alive(1)}, PID: 1,
	}})
	s.Entries = append(s.Entries, w.entries...)
	return s
}

// What any claimant or contender may take wants y, all else the name and a reason.
func TestThreeLevelsOfConfirmation(t *testing.T) {
	token := func(change func(*verdict.TokenFacts)) func(*verdict.LockFacts) {
		return func(f *verdict.LockFacts) {
			f.Token = &verdict.TokenFacts{
				Seen:   verdict.Seen{Path: storage + "/.a.lock.reclaim", Look: noon, Proc: dead(proc.Gone), Beat: noon},
				Record: &record.Lock{PID: 377, Hostname: "old-host", WriterEpoch: "reclaim-377-1"},
			}
			change(f.Token)
		}
	}
	for _, c := range []struct {
		name  string
		make  func(*world)
		typed string // "": y is enough
		says  string
	}{
		{"dead lease", func(w *world) { w.lease("a", 0, dead(proc.Gone), nil) }, "", "nobody: its holder is gone"},
		{"expired lease", func(w *world) { w.lease("a", time.Minute, alive(1), nil) }, "", "this ends the agent a within 5s"},
		{"live lease", func(w *world) { w.lease("a", 0, alive(48213), nil) }, "a", "pid 48213 is the AgentMux server and holds 1 lease"},
		{"late lease", func(w *world) { w.lease("a", 9*time.Second, alive(1), nil) }, "a", ""},
		{"remote lease", func(w *world) { w.lease("a", 0, elsewhere(), nil) }, "a", ""},
		{"unknown lease", func(w *world) { w.lease("a", 0, proc.Finding{Machine: proc.Here}, nil) }, "a", ""},
		{"torn lease, honoured", func(w *world) {
			w.lease("a", 0, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Problem = malformed(f.Path, 15, true, "it ends") })
		}, "a", "whoever is writing it"},
		{"torn lease, over", func(w *world) {
			w.lease("a", time.Minute, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Problem = malformed(f.Path, 15, true, "it ends") })
		}, "", "--expect sha256:"},
		{"dead lock", func(w *world) { w.lock("a.lock", "", 0, dead(proc.Gone), nil) }, "", "nobody: its holder is gone"},
		{"expired lock", func(w *world) { w.lock("a.lock", "", time.Hour, elsewhere(), nil) }, "", "watched for 16s"},
		{"live lock", func(w *world) { w.lock("a.lock", "", 0, alive(1), nil) }, "a.lock", "within 5s; meanwhile another may have the lock"},
		{"live lock with a name", func(w *world) { w.lock("a.lock", "web-app", 0, alive(1), nil) }, "web-app", ""},
		{"stopped lock", func(w *world) {
			w.lock("a.lock", "", 0, alive(1), func(f *verdict.LockFacts) { f.Proc.Condition = proc.Stopped })
		}, "a.lock", "goes on writing when it continues"},
		{"lock that is no record", func(w *world) {
			w.lock("a.lock", "", time.Hour, proc.Finding{}, func(f *verdict.LockFacts) { f.Problem = malformed(f.Path, 3, false, "no JSON") })
		}, "a.lock", ""},
		{"dead token", func(w *world) {
			w.lock("a.lock", "", 0, alive(1), token(func(*verdict.TokenFacts) {}))
		}, "a.lock", ""}, // it does not block: the lock is what B means
		{"living token", func(w *world) {
			w.lock("a.lock", "", 0, dead(proc.Gone), token(func(f *verdict.TokenFacts) { f.Proc = alive(377) }))
		}, ".a.lock.reclaim", "if its maker still runs, it may remove a lock"},
		{"unknown token", func(w *world) {
			w.lock("a.lock", "", 0, dead(proc.Gone), token(func(f *verdict.TokenFacts) { f.Proc = elsewhere() }))
		}, ".a.lock.reclaim", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{at: noon}
			c.make(w)
			for i := range w.entries {
				if w.entries[i].Kind == watch.Token {
					w.entries[i].Raw = []byte("{}")
				}
			}
			d := sit(t, screenFor(), 140, 40)
			d.see(w.snapshot())
			d.plans("B")
			d.wants(c.says)
			d.wants("~/audit.jsonl")
			agreed := d.press("y")
			if c.typed == "" {
				if len(agreed) != 1 || !agreed[0].acts {
					t.Errorf("y gave %+v", agreed)
				}
				return
			}
			if len(agreed) != 0 {
				t.Fatal("y confirmed it")
			}
			d.press("backspace")
			d.wants("type " + c.typed + " to confirm")
			d.types(c.typed)
			if got := d.press("enter"); len(got) != 0 {
				t.Fatal("no reason was wanted")
			}
			d.types("   ")
			if got := d.press("enter"); len(got) != 0 {
				t.Fatal("a blank reason was taken")
			}
			d.types("why")
			if got := d.press("enter"); len(got) != 1 || !got[0].acts || d.dialog != nil {
				t.Errorf("enter gave %+v", got)
			}
		})
	}
}

func TestDeadTokenInTheLitterViewWantsY(t *testing.T) {
	w := &world{at: noon}
	w.lock("a.lock", "", 0, alive(1), func(f *verdict.LockFacts) {
		f.Token = &verdict.TokenFacts{
			Seen:   verdict.Seen{Path: storage + "/.a.lock.reclaim", Look: noon, Proc: dead(proc.Gone), Beat: noon},
			Record: &record.Lock{PID: 377, Hostname: "vm", WriterEpoch: "reclaim-377-1"},
		}
	})
	d := sit(t, screenFor(), 140, 40)
	d.see(w.snapshot())
	d.press("4")
	d.plans("B")
	d.wants("remove the token .a.lock.reclaim?")
	d.wants("nobody: the next attempt would clear it")
	d.wants("--expect reclaim-377-1 --yes")
	if got := d.press("y"); len(got) != 1 || !got[0].acts {
		t.Errorf("y gave %+v", got)
	}
}

func TestPlanCountsWhatTheServerHolds(t *testing.T) {
	d := opened(t, 140, 40)
	d.choose("researcher")
	d.plans("B")
	d.wants("this ends the agent researcher within 5s; pid 48213 is the AgentMux server and holds 3 leases")
}

func TestNameIsTypedAndNeverPasted(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("researcher")
	d.press("B")
	d.types("researcher") // before it could be read
	if got := d.dialog.typing.name.value(); got != "" {
		t.Errorf("%q was heard while the plan was deaf", got)
	}
	d.later(dialogDeaf)
	for _, k := range []keyPress{{text: "researcher", pasted: true}, {text: "researcher"}, {text: "r", pasted: true, single: true}} {
		d.tell(k)
		if got := d.dialog.typing.name.value(); got != "" {
			t.Errorf("%+v filled the name with %q", k, got)
		}
	}
	d.wants("the name is typed key by key, not pasted")
	d.types("researche")
	d.press("enter") // on a name that is none
	d.wants("that is not researcher")
	if d.dialog.typing.onReason {
		t.Error("what is typed next would be the reason")
	}
	d.types("r")
	d.press("tab")
	d.tell(keyPress{text: "see the ticket\r\ny", pasted: true})
	if got := d.dialog.typing.why(); !strings.HasPrefix(got, "see the ticket") {
		t.Errorf("the reason is %q", got)
	}
	if d.dialog == nil || len(d.did) != 0 {
		t.Error("a paste confirmed it")
	}
	d.tell(resized{40, 9})
	if got := d.press("enter"); len(got) != 0 {
		t.Error("it was confirmed on a screen that shows nothing of it")
	}
	d.tell(resized{50, 10})
	d.wants("enter break it")
	if got := d.press("enter"); len(got) != 1 || !got[0].acts {
		t.Errorf("enter gave %+v", got)
	}
}

func TestLettersAreNoCommandsWhileANameIsTyped(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("researcher")
	d.plans("B")
	d.types("qnyjkRW?/")
	if d.dialog == nil || d.dialog.typing.name.value() != "qnyjkRW?/" {
		t.Fatal("a letter did something else")
	}
	d.press("tab", "x", "tab", "ctrl+u")
	if d.dialog.typing.name.value() != "" || d.dialog.typing.why() != "x" {
		t.Errorf("%q and %q", d.dialog.typing.name.value(), d.dialog.typing.why())
	}
	d.press("esc")
	if d.dialog != nil || len(d.did) != 0 {
		t.Error("esc does not leave it")
	}
}

func TestChangeKillsABreak(t *testing.T) {
	for name, change := range map[string]func(*world){
		"gone": func(*world) {},
		"taken": func(w *world) {
			w.lease("researcher", 0, alive(77), func(f *verdict.LeaseFacts) { f.Record.ClaimID = "new" })
		},
		"another state": func(w *world) { w.lease("researcher", 0, dead(proc.Gone), nil) },
	} {
		d := opened(t, 140, 40)
		d.choose("researcher")
		d.plans("B")
		d.types("researcher")
		d.press("tab")
		d.types("why")
		about := d.dialog.target
		w := &world{at: d.clock.Add(time.Second), seq: 9}
		change(w)
		d.see(w.snapshot())
		d.wants("since this plan was made")
		d.wants("this plan cannot be confirmed any more")
		if got := d.press("enter"); len(got) != 0 || d.dialog.target != about {
			t.Errorf("%s: enter gave %+v", name, got)
		}
	}
}

func TestPlanOfAStalePictureWaits(t *testing.T) {
	d := opened(t, 140, 40)
	d.choose("crashed")
	d.plans("B")
	d.later(time.Minute)
	if got := d.press("y"); len(got) != 0 {
		t.Errorf("y gave %+v", got)
	}
}

func TestBreakThatIsWatchedIsCancelledByTheEnd(t *testing.T) {
	k := stockOf(t)
	k.put(k.lock, 77, "web02", "far", time.Hour)
	began := make(chan struct{})
	k.s.tests.breakLock = func(ctx context.Context, l *fslock.Locker, i fslock.Info, r fslock.Removal) error {
		close(began)
		return l.Break(ctx, i, r)
	}
	d := k.sit()
	d.plans("B")
	agreed := d.press("y")
	d.wants("Breaking index/8eb3d10c88aa02f1/cache.lock: watched for 16s first.")
	if got := d.press("ctrl+z"); len(got) != 0 {
		t.Error("suspended while a change is under way")
	}
	answer := make(chan any, 1)
	go func() { answer <- agreed[0].run(context.Background()) }()
	<-began
	if notes, failed := d.holds.close(); len(notes) != 0 || failed {
		t.Errorf("close: %v %v", notes, failed)
	}
	if got := (<-answer).(broken); !errors.Is(got.err, context.Canceled) {
		t.Errorf("the break answered %v", got.err)
	}
	if !exists(k.lock) {
		t.Error("it was broken all the same")
	}
	if _, ok, _ := k.s.Audit.LastAct(k.lock); ok {
		t.Error("the log tells of what was not done")
	}
}

func TestLockThatMustBeWatchedIsTriedUntilItWas(t *testing.T) {
	k := stockOf(t)
	k.put(k.lock, 77, "web02", "far", time.Hour)
	tries := 0
	k.s.tests.acquire = func(*fslock.Locker, string) (holding, error) {
		if tries++; tries < 3 {
			return nil, &fslock.ConflictError{Op: "acquire", Path: k.lock, Err: fslock.ErrHeld, Left: time.Millisecond}
		}
		return nil, &fslock.ConflictError{Op: "acquire", Path: k.lock, Err: fslock.ErrHeld}
	}
	d := k.sit()
	d.plans("A")
	d.wants("it is watched for 16s; one heartbeat of its holder")
	agreed := d.press("y")
	d.wants("Acquiring index/8eb3d10c88aa02f1/cache.lock: watched for 16s first.")
	d.finish(agreed)
	if tries != 3 {
		t.Errorf("%d attempts", tries)
	}
	d.wants("Not acquired: index/8eb3d10c88aa02f1/cache.lock: acquire " + k.lock + ": lock is held")
}

func TestErrorsStayUntilAKey(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	k.s.tests.breakLock = func(context.Context, *fslock.Locker, fslock.Info, fslock.Removal) error { return errMadeUp }
	d := k.sit()
	d.plans("B")
	d.finish(d.press("y"))
	d.wants("Not broken: index/8eb3d10c88aa02f1/cache.lock: made up")
	d.later(time.Second)
	d.see(look(t, k.w))
	d.wants("Not broken")
	d.press("k")
	if d.note.text != "" {
		t.Error("a key does not clear it")
	}
}

// dusty is a sweeper of a root that fails.
type dusty struct{}

func (dusty) Plan(context.Context) (sweep.Plan, error) {
	return sweep.Plan{Steps: []sweep.Step{{Path: "/x/.a.lock.reclaim", Remove: true, Why: "dead\x1b[2J", Token: &fslock.TokenInfo{Facts: &verdict.TokenFacts{Seen: verdict.Seen{Missing: true}}}}}},
		os.ErrPermission
}

func (dusty) Run(context.Context, sweep.Plan) (sweep.Report, error) {
	return sweep.Report{Kept: make([]sweep.Step, 1), Errors: []sweep.PlaceError{{Path: "/x", Err: os.ErrPermission}}}, errMadeUp
}

func TestSweepTellsItsErrorsAndPlansNothingTwice(t *testing.T) {
	s := screenFor()
	s.tests.sweeper = func(string, bool, *fslock.Locker, *audit.Log) sweeper { return dusty{} }
	d := sit(t, s, 140, 40)
	d.see(everything(noon))
	d.plans("W")
	d.wants("1 token to remove, 0 tokens to leave")
	d.wants("error " + registry + ": permission denied")
	d.wants("error " + storage + ": permission denied")
	d.finish(d.press("y"))
	d.wants("Swept: 0 removed, 2 left because they changed, 4 errors; the first: ")
}

func TestPlanOfAnEarlierSweepIsNotShown(t *testing.T) {
	s := screenFor()
	s.tests.sweeper = func(string, bool, *fslock.Locker, *audit.Log) sweeper { return dusty{} }
	d := sit(t, s, 140, 40)
	d.see(everything(noon))
	early := d.press("W")
	d.press("esc")
	d.finish(early)
	if d.dialog != nil {
		t.Fatal("a plan opened by itself")
	}
	d.press("W")
	d.finish(early)
	if d.dialog.sweep != nil {
		t.Error("the plan of the first is shown as that of the second")
	}
}

func TestQuestionCountsLeasesAndLocks(t *testing.T) {
	d := opened(t, 80, 24)
	d.holding("researcher", "planner", storage+"/index/11c0ffee11c0ffee/cache.lock")
	d.press("q")
	d.wants("You hold 2 leases and 1 lock.  enter release and quit   esc stay")
	d.tell(resized{40, 9})
	d.wants("You hold 2 leases and 1 lock.")
}

func TestLitterView(t *testing.T) {
	d := sit(t, screenFor(), 80, 24)
	d.see(withFreeLock(noon))
	d.press("4")
	var kinds []string
	for _, r := range d.rows {
		kinds = append(kinds, r.entry.Kind.String())
	}
	if got := strings.Join(kinds, " "); got != "token temp" {
		t.Errorf("it shows %s", got)
	}
	d.wants("W sweep")
	d.press("2")
	d.wants("problems 1/")
	d.press("4", "4")
	if d.shows != allRows {
		t.Error("4 does not go back")
	}
	d.press("4", "esc")
	if d.shows != allRows {
		t.Error("esc does not go back")
	}
	w := &world{at: noon, seq: 5}
	w.lease("a", 0, alive(1), nil)
	d.see(w.snapshot())
	d.press("4")
	d.wants("No tokens and no temps. esc shows all 1 entry.")
}

func TestFooterOffersWhatMakesSense(t *testing.T) {
	for entry, want := range map[string]string{
		"crashed": "C claim B break", "researcher": "B break", "relay": "C claim",
		storage + "/index/11c0ffee11c0ffee/cache.lock":     "B break",
		storage + "/inspect/8eb3d10c88aa02f1/writer.lease": "B break",
		storage + "/symbols/77aa77aa77aa77aa/cache.lock":   "",
	} {
		d := opened(t, 140, 40)
		d.choose(entry)
		var got []string
		for _, h := range d.hints() {
			if strings.Contains("CARBW", h.key) {
				got = append(got, h.key+" "+h.says)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %q, want %q", entry, s, want)
		}
	}
}

func TestPlanSaysWhoDiesAsFarAsThatIsSeen(t *testing.T) {
	for id, want := range map[string]string{
		"researcher": "this ends the agent researcher within 5s; pid 48213",
		"planner":    "this ends the agent planner within 5s; pid 48213",
		"sleeper":    "this ends the agent sleeper within 5s of its going on; pid 48377",
		"far":        "this ends the agent far within 5s, if it runs; pid 1442",
		"reviewer":   "this ends the agent reviewer within 5s, if it runs; pid 46120",
	} {
		d := opened(t, 140, 40)
		d.choose(id)
		d.plans("B")
		d.wants(want)
	}
}
