package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

func TestClaimIsRefusedWithItsReason(t *testing.T) {
	for _, c := range []struct {
		name, entry, says string
		screen            func(*Screen)
		before            func(*desk)
	}{
		{name: "held", entry: "researcher", says: "researcher is held: free in 13s at the earliest, if nothing is renewed."},
		{name: "a lock", entry: storage + "/index/11c0ffee11c0ffee/cache.lock", says: "C claims leases"},
		{name: "torn", entry: "torn", says: "torn cannot be read, and is honoured: free in 9s at the earliest, if nothing is written."},
		{name: "epoch damaged", entry: "uncounted", says: "uncounted cannot be claimed till somebody acts: it is blocked by its damaged epoch counter (no number)"},
		{name: "held already", entry: "reviewer", says: "holds reviewer already", before: func(d *desk) { d.holding("reviewer") }},
		{name: "read-only", entry: "crashed", says: "read-only (RO)", screen: func(s *Screen) { s.ReadOnly = true }},
		{name: "no store", entry: "crashed", says: "not known as one of leases", screen: func(s *Screen) { s.Stores = nil }},
		{name: "the watcher stopped", entry: "crashed", says: "stale", before: func(d *desk) { d.tell(delivery{ended: true}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := screenFor()
			if c.screen != nil {
				c.screen(s)
			}
			d := sit(t, s, 140, 40)
			d.see(everything(noon))
			if c.before != nil {
				c.before(d)
			}
			d.choose(c.entry)
			d.press("C")
			if d.dialog != nil {
				t.Fatal("a plan opened")
			}
			d.wants(c.says)
		})
	}
}

func TestReleaseIsOnlyForWhatTheScreenHolds(t *testing.T) {
	d := opened(t, 140, 40)
	d.choose("researcher")
	d.press("R")
	if d.dialog != nil {
		t.Fatal("a plan opened for somebody else's lease")
	}
	d.wants("researcher belongs to pid 48213 on vm")
}

// plan opens the plan for a claim and waits until it listens.
func plan(t *testing.T, id string) *desk {
	t.Helper()
	d := opened(t, 140, 40)
	d.choose(id)
	d.press("C")
	if d.dialog == nil {
		t.Fatalf("no plan: %s", d.note.text)
	}
	d.later(dialogDeaf)
	return d
}

func TestPlanSaysWhatIsComparedAndWritten(t *testing.T) {
	d := plan(t, "reviewer")
	for _, part := range []string{
		"a turn may still be going on", "claim claim-reviewer", leases + "/reviewer.lease.json", "with epoch 7", leases + "/reviewer.epoch: 7",
		"renews it until", "holdfast claim reviewer --hold", "[ Cancel ]", "y claim",
	} {
		if !strings.Contains(strings.Join(strings.Fields(d.view()), " "), part) {
			t.Errorf("the plan does not say %q:\n%s", part, d.view())
		}
	}
}

func TestOnlyYConfirmsAPlan(t *testing.T) {
	for _, key := range []string{"enter", "esc", "n", "q", "Y", "C", "x", " ", "tab", "ctrl+z"} {
		d := plan(t, "crashed")
		if got := d.press(key); len(got) != 0 {
			t.Errorf("%s did %+v", key, got)
		}
	}
	d := plan(t, "crashed")
	if got := d.press("y"); len(got) != 1 || got[0].run == nil || d.dialog != nil {
		t.Errorf("y gave %+v", got)
	}
}

func TestPlanIsDeafAtFirst(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("crashed")
	d.press("C")
	if got := d.press("y", "enter"); len(got) != 0 || d.dialog == nil {
		t.Error("a key that was typed before the plan could be read was heard")
	}
	if due := d.due(); !due.Equal(d.dialog.opened.Add(dialogDeaf)) {
		t.Error("nothing happens when the plan begins to listen")
	}
	d.later(dialogDeaf)
	if got := d.press("y"); len(got) != 1 {
		t.Error("y is not heard later")
	}
}

func TestBeatIsNoChangeToAPlan(t *testing.T) {
	d := plan(t, "reviewer")
	w := &world{at: d.clock.Add(time.Second), seq: 9}
	acquired := noon.Add(-4 * time.Minute).UnixMilli()
	w.lease("reviewer", 65*time.Second, alive(46120), func(f *verdict.LeaseFacts) { f.Record.PID, f.Record.AcquiredAtMS = 46120, acquired })
	d.see(w.snapshot())
	if d.dialog.changed != "" {
		t.Errorf("a beat counts as a change: %s", d.dialog.changed)
	}
	if got := d.press("y"); len(got) != 1 {
		t.Error("y is dead")
	}
}

func TestChangeKillsTheConfirmKey(t *testing.T) {
	for name, change := range map[string]func(*world){
		"taken": func(w *world) { w.lease("crashed", 0, alive(77), nil) },
		"gone":  func(*world) {},
		"another claim": func(w *world) {
			w.lease("crashed", 3e9, dead(proc.Gone), func(f *verdict.LeaseFacts) { f.Record.ClaimID = "other" })
		},
		"another death": func(w *world) { w.lease("crashed", 3e9, dead(proc.Recycled), nil) },
		"released by him": func(w *world) {
			w.lease("crashed", 0, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Missing = true })
		},
		"counter broken": func(w *world) {
			w.lease("crashed", 3e9, dead(proc.Gone), func(f *verdict.LeaseFacts) {
				f.Record.Epoch = 0
				f.Counter.Problem = malformed(f.Counter.Path, 0, false, "no number")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := plan(t, "crashed")
			target := d.dialog.target
			w := &world{at: d.clock.Add(time.Second), seq: 9}
			change(w)
			d.see(w.snapshot())
			d.wants("since this plan was made")
			if d.dialog.target != target {
				t.Error("the plan's target moved")
			}
			if got := d.press("y"); len(got) != 0 {
				t.Error("y still acts")
			}
			// What comes back is not what was agreed to either.
			d.see(everything(d.clock.Add(time.Second)))
			if got := d.press("y"); len(got) != 0 {
				t.Error("y acts again")
			}
			d.press("esc")
			if d.dialog != nil {
				t.Error("esc does not close it")
			}
		})
	}
}

func TestTimeAloneCanChangeAPlan(t *testing.T) {
	d := opened(t, 80, 24)
	w := &world{at: noon, seq: 3}
	w.lease("torn", 16*time.Second, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Problem = malformed(f.Path, 15, true, "it ends") })
	d.see(w.snapshot())
	d.press("C")
	if d.dialog == nil {
		t.Fatal(d.note.text)
	}
	d.later(time.Second)
	if d.dialog.changed != "" {
		t.Errorf("nothing changed, yet: %s", d.dialog.changed)
	}
}

func TestQuitAsksWhileSomethingIsHeld(t *testing.T) {
	d := opened(t, 80, 24)
	d.holding("researcher")
	if quits(d.press("q")) {
		t.Fatal("q quit")
	}
	d.wants("You hold 1 lease.  enter release and quit   esc stay")
	d.press("esc")
	if d.dialog != nil {
		t.Fatal("esc does not stay")
	}
	d.holding("researcher", "planner")
	d.press("q")
	d.wants("You hold 2 leases.")
	d.later(dialogDeaf)
	if !quits(d.press("enter")) {
		t.Error("enter does not quit")
	}
}

func TestSecondInterruptQuitsAtOnce(t *testing.T) {
	d := opened(t, 80, 24)
	d.holding("researcher")
	if quits(d.press("ctrl+c")) {
		t.Fatal("the first one quit")
	}
	if !quits(d.press("ctrl+c")) {
		t.Error("the second one did not quit")
	}
	if d := opened(t, 80, 24); !quits(d.press("ctrl+c")) {
		t.Error("with nothing held it did not quit")
	}
}

// watcherOf watches a real root with a free lease of each id; the store is that of their directory.
func watcherOf(t *testing.T, ids ...string) (*watch.Watcher, *lease.Store) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "leases")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := os.WriteFile(filepath.Join(dir, id+".epoch"), []byte("6\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &watch.Watcher{Roots: []watch.Root{{Path: root}}}
	return w, w.Store(dir)
}

// registryOf is a screen on a real root with the free lease agent.
func registryOf(t *testing.T) (*Screen, *watch.Watcher, *lease.Store) {
	t.Helper()
	w, store := watcherOf(t, "agent")
	s := screenFor()
	s.Watch, s.Stores = polling(w, time.Second), w.Store
	return s, w, store
}

// look is a fresh snapshot.
func look(t *testing.T, w *watch.Watcher) *watch.Snapshot {
	t.Helper()
	s, err := w.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// agree confirms the plan for a claim of the one lease and returns what that wants done.
func agree(t *testing.T, s *Screen, w *watch.Watcher) (d *desk, agreed []command) {
	t.Helper()
	d = sit(t, s, 120, 30)
	d.see(look(t, w))
	d.press("C")
	if d.dialog == nil {
		t.Fatal(d.note.text)
	}
	d.later(dialogDeaf)
	return d, d.press("y")
}

func TestClaimAndReleaseOnDisk(t *testing.T) {
	s, w, store := registryOf(t)
	d, agreed := agree(t, s, w)
	d.finish(agreed)
	d.wants("Claimed agent with epoch 7")
	now := d.holds.view().list
	if len(now) != 1 || now[0].epoch != 7 {
		t.Fatalf("held: %+v", now)
	}
	d.see(look(t, w))
	d.wants("agent *")
	d.wants("1 held")

	d.press("R")
	if d.dialog == nil {
		t.Fatal(d.note.text)
	}
	d.wants(now[0].nonce)
	if strings.Contains(d.screenText(), "holdfast release") {
		t.Error("the plan shows a command that is refused while this screen lives")
	}
	d.later(dialogDeaf)
	d.finish(d.press("y"))
	d.wants("Released agent.")
	if left := d.holds.view().list; len(left) != 0 {
		t.Errorf("still held: %+v", left)
	}
	if info, _ := store.Inspect("agent"); info.Verdict.State != verdict.Free {
		t.Errorf("the lease is %v", info.Verdict.State)
	}
	if notes, failed := d.holds.close(); len(notes) != 0 || failed {
		t.Errorf("close: %v %v", notes, failed)
	}
}

// claimedBy is a screen that has claimed the one lease and seen that.
func claimedBy(t *testing.T) (d *desk, w *watch.Watcher, store *lease.Store) {
	t.Helper()
	s, w, store := registryOf(t)
	d, agreed := agree(t, s, w)
	d.finish(agreed)
	d.see(look(t, w))
	d.wants("1 held")
	d.wants("This screen renews it")
	return d, w, store
}

// hears brings the news of the holds, as the inbox would.
func (d *desk) hears() {
	held, losses := d.holds.news()
	d.tell(delivery{held: held, losses: losses})
}

func TestLossIsToldAsSoonAsItIsSeen(t *testing.T) {
	for _, c := range []struct {
		name, says string
		lose       func(store *lease.Store) error
	}{
		{"file gone", "Lost lease agent: its file is gone. What relies on it must stop (esc).", func(store *lease.Store) error {
			return os.Remove(filepath.Join(store.Dir, "agent.lease.json"))
		}},
		{"directory gone", "Lost lease agent: its file is gone.", func(store *lease.Store) error {
			return os.RemoveAll(store.Dir)
		}},
		{"taken", fmt.Sprintf("Lost lease agent to pid %d on ", os.Getpid()), func(store *lease.Store) error {
			if err := os.Remove(filepath.Join(store.Dir, "agent.lease.json")); err != nil {
				return err
			}
			_, err := store.Claim(t.Context(), "agent", lease.Claimant{Owner: "other", Block: "b"})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, w, store := claimedBy(t)
			if err := c.lose(store); err != nil {
				t.Fatal(err)
			}
			d.did = nil
			d.see(look(t, w))
			d.finish(d.did) // nobody waits for the next renewal
			d.hears()
			d.tell(resized{80, 24})
			d.wants(c.says)
			d.wants("This screen does not hold agent any more.")
			for _, old := range []string{"1 held", "renews it"} {
				if strings.Contains(d.screenText(), old) {
					t.Errorf("the screen still says %q:\n%s", old, d.screenText())
				}
			}
			if len(d.losses) != 1 || d.checking {
				t.Errorf("%d losses, checking %v", len(d.losses), d.checking)
			}
		})
	}
}

func TestPictureFromBeforeTheClaimIsNoLoss(t *testing.T) {
	s, w, _ := registryOf(t)
	free := look(t, w)
	d, agreed := agree(t, s, w)
	d.finish(agreed)
	d.did = nil
	d.see(free)
	if len(d.did) != 1 {
		t.Fatalf("%d commands for a picture in which the lease is free", len(d.did))
	}
	d.see(free)
	if len(d.did) != 1 {
		t.Error("a second look while the first is under way")
	}
	d.finish(d.did)
	d.hears()
	if len(d.losses) != 0 || len(d.held) != 1 {
		t.Errorf("losses %v, held %v", d.losses, d.held)
	}
}

func TestLossBeforeTheClaimIsToldStays(t *testing.T) {
	s, w, store := registryOf(t)
	d, agreed := agree(t, s, w)
	answer := agreed[0].run(t.Context()).(taken)
	if err := os.Remove(filepath.Join(store.Dir, "agent.lease.json")); err != nil {
		t.Fatal(err)
	}
	d.holds.check(t.Context())
	d.hears()
	d.tell(answer)
	d.wants("Lost lease agent")
	if text := d.screenText(); strings.Contains(text, "1 held") || strings.Contains(text, "renews it") {
		t.Errorf("an old answer counts:\n%s", text)
	}
}

func TestWhatIsBeingReleasedIsNotLost(t *testing.T) {
	d, _, store := claimedBy(t)
	d.holds.list[0].releasing = true
	if err := os.Remove(filepath.Join(store.Dir, "agent.lease.json")); err != nil {
		t.Fatal(err)
	}
	d.holds.check(t.Context())
	if _, losses := d.holds.news(); len(losses) != 0 {
		t.Errorf("losses: %v", losses)
	}
}

func TestLossSaysItsReason(t *testing.T) {
	d := opened(t, 80, 24)
	late := fmt.Errorf("%w: not renewed for 10.2s: %w", lease.ErrLost, &lease.ConflictError{Err: lease.ErrUnreadable})
	d.tell(delivery{losses: []loss{{held{name: strings.Repeat("long", 20)}, late}}})
	d.wants("Lost lease longlon…longlong; what relies on it must stop (esc): not renewed")
}

func TestPlanIsComparedAgainWhenItRuns(t *testing.T) {
	s, w, store := registryOf(t)
	d, agreed := agree(t, s, w)
	// Between the yes and the claim, somebody had it and gave it back: the epoch that the plan told is taken.
	other, err := store.Claim(t.Context(), "agent", lease.Claimant{Owner: "other", Block: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
	d.finish(agreed)
	d.wants("Not claimed: agent: changed since the plan was made")
	if held := d.holds.view().list; len(held) != 0 {
		t.Errorf("held: %+v", held)
	}
}

func TestReadOnlyReachesNoStore(t *testing.T) {
	s, _, store := registryOf(t)
	s.ReadOnly = true
	s.tests.claim = func(context.Context, *lease.Store, string, lease.Claimant) (holding, error) {
		t.Error("a claim was made")
		return nil, errMadeUp
	}
	d := sit(t, s, 120, 30)
	if _, err := d.holds.take(t.Context(), target{id: "agent", ref: ref{watch.Lease, store.Dir + "/agent.lease.json"}}); !errors.Is(err, fslock.ErrReadOnly) {
		t.Errorf("claim: %v", err)
	}
	if err := d.holds.release(target{}); !errors.Is(err, fslock.ErrReadOnly) {
		t.Errorf("release: %v", err)
	}
}

func TestClaimUnderWayWhenTheScreenEndsIsGivenBack(t *testing.T) {
	s, w, store := registryOf(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	s.tests.claim = func(ctx context.Context, store *lease.Store, id string, c lease.Claimant) (holding, error) {
		close(entered)
		<-goOn
		return claimLease(ctx, store, id, c)
	}
	d, agreed := agree(t, s, w)
	answer := make(chan any, 1)
	go func() { answer <- agreed[0].run(t.Context()) }()
	<-entered
	closed := make(chan struct{})
	go func() {
		d.holds.close()
		close(closed)
	}()
	for { // close has begun once nothing new can start
		d.holds.mu.Lock()
		begun := d.holds.closed
		d.holds.mu.Unlock()
		if begun {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	<-closed
	if got := (<-answer).(taken); !errors.Is(got.err, errClosing) {
		t.Errorf("the claim answered %+v", got)
	}
	if info, _ := store.Inspect("agent"); info.Verdict.State != verdict.Free || info.Epoch != 7 {
		t.Errorf("the lease is %v with epoch %d", info.Verdict.State, info.Epoch)
	}
}

func TestCommandsNameARootThatIsNotFoundByItself(t *testing.T) {
	for _, c := range []struct{ chosenBy, root string }{{"default", ""}, {"argument", " --root " + registry}} {
		d := sit(t, screenFor(), 140, 60)
		snap := everything(noon)
		snap.Roots[0].ChosenBy = c.chosenBy
		d.see(snap)
		for _, size := range [][2]int{{200, 40}, {100, 24}} {
			d.tell(resized{size[0], size[1]})
			d.choose("uncounted")
			d.wants("next holdfast epoch uncounted" + c.root)
		}
		d.choose("reviewer")
		d.press("C")
		d.wants("command holdfast claim reviewer --hold" + c.root)
		if c.root == "" && strings.Contains(d.screenText(), "--root") {
			t.Errorf("the command names a root that is found anyway:\n%s", d.screenText())
		}
	}
}

func TestAPlanTellsOfKeysThatCameAtOnce(t *testing.T) {
	for _, h := range []int{12, 24} {
		d := opened(t, 50, h)
		d.choose("crashed")
		d.plans("B")
		d.tell(keyPress{text: "yy"})
		d.wants(chunkWords)
		checkPicture(t, d.model)
		if len(d.did) != 0 || d.dialog == nil {
			t.Fatal("they acted")
		}
		d.tell(keyPress{text: "y", pasted: true})
		if d.press("j"); strings.Contains(d.screenText(), chunkWords) {
			t.Error("it is still said after a key")
		}
		if got := d.press("y"); len(got) != 1 || !got[0].acts {
			t.Errorf("y gave %+v", got)
		}
	}
}
